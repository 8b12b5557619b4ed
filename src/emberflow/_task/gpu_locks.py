"""One node per GPU of a host: who holds a GPU, and an error for the second one who wants it.

Spark gives the GPUs of a stage that has returned to the next stage, also where live nodes still use them. A node
therefore holds a name per GPU among this host's abstract sockets, from its start to its end. It is held by the task
or attendant that runs the node; the kernel frees it with that process, however it ends.
"""

import errno
import socket
import time
from contextlib import suppress
from pathlib import Path

from emberflow._plan import deadlines
from emberflow._protocol.sockets import peer_process, readable
from emberflow.errors import ClusterError

WAITING = 4096  # connections of those who wait for a lock; they stay in the queue, since nobody accepts them


def try_lock(identity: str) -> socket.socket | None:
    """Return the lock of a GPU, or None if it is held; closing it frees it."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(_name(identity))
        sock.listen(WAITING)
    except OSError as error:
        sock.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return sock


def lock(device: str, identity: str) -> socket.socket:
    """Return the lock of a GPU; a node that is just being ended is waited for.

    Args:
        device: The GPU as CUDA_VISIBLE_DEVICES names it.
        identity: What it is called on this host, whoever names it.

    Raises:
        ClusterError: A node still holds it at the deadline.
    """
    deadline = time.monotonic() + deadlines.GPU_LOCK_TIMEOUT
    while (held := try_lock(identity)) is None:
        _await_unlocked(device, identity, deadline)
    return held


def await_unlocked(device: str, identity: str) -> None:
    """Return when no node holds a GPU; the arguments and the error are those of `lock`."""
    _await_unlocked(device, identity, time.monotonic() + deadlines.GPU_LOCK_TIMEOUT)


def _await_unlocked(device: str, identity: str, deadline: float) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(deadlines.GPU_LOCK_TIMEOUT)
        try:
            sock.connect(_name(identity))
        except ConnectionRefusedError:  # nobody holds it
            return
        pid, _ = peer_process(sock)
        # Nobody accepts the connection; it breaks when the process that holds the lock ends.
        if not readable([sock], max(deadline - time.monotonic(), 0.0)):
            raise ClusterError(
                f"A GPU belongs to one node at a time. Received: GPU {device}, which Spark gave to this task, but "
                f"which process {pid}{_whose(pid)} holds on this host.",
                fix="Stop the live cluster that holds it (cluster.stop()), or wait for the end of the other run; or "
                "start fewer workers with GPUs, on executors that have others.",
            )


def _whose(pid: int) -> str:
    """Name the run of a process, where the system lets us see it."""
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if entry.startswith(b"EMBERFLOW_RUN="):
                return f" of run {entry.partition(b'=')[2].decode()}"
    return ""


def _name(identity: str) -> str:
    return f"\0emberflow-gpu-{identity}"
