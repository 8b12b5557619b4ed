"""Connections of unauthenticated peers: a flood of silent ones from another process, and many at the same time."""

import contextlib
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator

# Holds so many silent connections, and opens another for each that the server drops; until its input ends or 60 s
# are over.
FLOOD = """
import resource, selectors, socket, sys, time
port, at_once = int(sys.argv[1]), int(sys.argv[2])
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 2 * at_once), hard), hard))
selector, held, made, end, is_over = selectors.DefaultSelector(), set(), 0, time.monotonic() + 60, False
selector.register(0, selectors.EVENT_READ)
while time.monotonic() < end and not is_over:
    for _ in range(min(100, at_once - len(held))):
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(("127.0.0.1", port))
        selector.register(sock, selectors.EVENT_READ)
        held.add(sock)
        made += 1
        if made == at_once:
            print("flooding", flush=True)
    for key, _ in selector.select(0.01):
        if key.fileobj == 0:
            is_over = True
            continue
        try:
            is_open = key.fileobj.recv(64)  # the greeting
        except OSError:
            is_open = False
        if not is_open:
            selector.unregister(key.fileobj)
            key.fileobj.close()
            held.discard(key.fileobj)
print(made, flush=True)
"""


@contextlib.contextmanager
def flood(port: int, at_once: int = 1500) -> Iterator[None]:
    """Have another process hold `at_once` silent connections, and open one for each that it loses."""
    argv = [sys.executable, "-c", FLOOD, str(port), str(at_once)]
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
