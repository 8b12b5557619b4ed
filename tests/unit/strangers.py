"""Connections of strangers: a flood of silent ones from another process, and many that come in one go."""

import contextlib
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator

# Keeps opening silent connections, a thousand at a time, until its input ends or 60 s are over.
FLOOD = """
import collections, resource, select, socket, sys, time
host, port, at_once = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 4 * at_once), hard), hard))
held, made, end, poll = collections.deque(), 0, time.monotonic() + 60, select.poll()
poll.register(0)
family = socket.AF_INET6 if ":" in host else socket.AF_INET
while time.monotonic() < end and not poll.poll(0):
    sock = socket.socket(family)
    sock.setblocking(False)
    try:
        sock.connect((host, port))
    except BlockingIOError:
        pass
    except OSError:
        sock.close()
        continue
    held.append(sock)
    if len(held) > at_once:
        held.popleft().close()
    made += 1
    if made == at_once:
        print("flooding", flush=True)
print(made, flush=True)
"""


@contextlib.contextmanager
def flood(port: int, at_once: int = 1500) -> Iterator[None]:
    """Have another process open silent connections without pause; on entry it has `at_once` of them."""
    argv = [sys.executable, "-c", FLOOD, "127.0.0.1", str(port), str(at_once)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "flooding\n"
            yield
            assert process.poll() is None, "the flood ended before the test"
            process.stdin.close()
            print("silent connections:", process.stdout.readline().strip())
        finally:
            process.kill()


@contextlib.contextmanager
def open_files(least: int) -> Iterator[None]:
    """Let this process open that many files for the length of the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard < 0 or hard >= least, f"ulimit -Hn is {hard}"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, least) if soft >= 0 else soft, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def limited_files(most: int) -> Iterator[None]:
    """Let this process open no file with a number from `most` on, for the length of the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def silent(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Hold that many silent connections."""
    with contextlib.ExitStack() as held:
        yield [
            held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            for _ in range(count)
        ]
