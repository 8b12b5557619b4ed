"""Starts nodes by forking: TensorFlow is imported once, before the first of them is needed.

Run by an idle node of a live cluster as ``python -m emberflow._node.warm_starter``, in the node's process group. It
starts no thread and runs no operation of TensorFlow, so that its forks begin as if they had imported it themselves. A
task that wants a node connects to an abstract Unix name, and passes the descriptors that it would pass to a keeper. A
fork then becomes the keeper (`_keeper/main.py`), and a fork of that the node. Neither depends on this process.
"""

import json
import os
import random
import signal
import socket
import sys
import tempfile
import warnings

from emberflow._collector import pause_collector_for_import
from emberflow._keeper import main as keeper
from emberflow._lazy_keras import load_parts_late
from emberflow._plan import deadlines
from emberflow._protocol.handshake import ANSWER_SIZE, REFUSED, Challenge
from emberflow._protocol.sockets import listen_abstract, peer_process

PURPOSE = "warm start"
FIRST_FD = 200  # a fork finds from here on what it was passed: standard input and output, then the others
MOST_FDS = 32
READY = "ready"


def main() -> tuple[int, int]:
    """Serve tasks for ever; return in each node, with its sockets to its task."""
    order = json.loads(sys.stdin.readline())
    listener = listen_abstract(order["name"])
    _import()
    # Python 3.12 warns of every fork beside other threads. Those here belong to libraries that prepare for forks:
    # NumPy's BLAS, Arrow's allocator.
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    sys.stdout.write(READY + "\n")
    sys.stdout.flush()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel collects what forks leave
    key = bytes.fromhex(order["key"])
    while True:
        sock, _ = listener.accept()
        with sock:
            sock.settimeout(deadlines.HANDSHAKE_TIMEOUT)
            fds: list[int] = []
            try:
                fds = _receive(sock, key)
                pid = os.fork() if fds else -1
            except OSError:  # the task is gone or does not speak to us, or no process can be added
                _close(fds)
                continue
            if pid == 0:
                listener.close()
                sock.close()
                return _become_node(fds)
            if fds:
                _answer(sock, pid, fds)


def _import() -> None:
    """Import what nodes import."""
    pause_collector_for_import("tensorflow")
    load_parts_late()
    import keras  # noqa: F401

    import emberflow._feed.dataset
    import emberflow._node.main
    import emberflow.strategies.data_parallel.distribute  # noqa: F401
    import tensorflow as tf  # noqa: F401


def _receive(sock: socket.socket, key: bytes) -> list[int]:
    """Return the descriptors that an authenticated task of this user passes; none for anybody else."""
    if peer_process(sock)[1] != os.getuid():
        return []
    challenge = Challenge(key, PURPOSE)
    sock.sendall(challenge.greeting)
    answer = sock.recv(ANSWER_SIZE, socket.MSG_WAITALL)
    reply = challenge.reply_to(answer) if len(answer) == ANSWER_SIZE else REFUSED
    sock.sendall(reply)
    if reply == REFUSED:
        return []
    _, fds, _, _ = socket.recv_fds(sock, 1, MOST_FDS)
    return fds


def _answer(sock: socket.socket, pid: int, fds: list[int]) -> None:
    """Give the task a descriptor of its keeper's process."""
    _close(fds)
    try:
        watched = os.pidfd_open(pid)
    except OSError:  # it has ended already, and the task will read that
        return
    try:
        socket.send_fds(sock, [b"\0"], [watched])
    except OSError:
        pass  # the task is gone: its keeper sees that too
    finally:
        os.close(watched)


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def _become_node(fds: list[int]) -> tuple[int, int]:
    """Become a keeper, and end with it; return in the node that it has forked."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for place, fd in enumerate(fds):
        os.dup2(fd, FIRST_FD + place)
        os.close(fd)
    os.dup2(FIRST_FD, 0)
    os.dup2(FIRST_FD + 1, 1)
    os.close(FIRST_FD)
    os.close(FIRST_FD + 1)
    if not keeper.main():
        os._exit(0)
    tempfile.tempdir = None  # it was read from the environment of the process before
    random.seed()
    sys.modules["numpy"].random.seed()
    return FIRST_FD + 2, FIRST_FD + 3


if __name__ == "__main__":
    sockets = main()
    from emberflow._node.main import main as run_node

    run_node(*sockets)
