"""Which GPUs of this host are held by scoring, and waiting until one is free.

TensorFlow gives GPU memory back only when its process ends. A process that scores (`_score/gpu_server.py`) therefore
listens on a name per GPU among this host's abstract sockets, which the kernel frees when the process ends, however it
ends. A process that needs the GPU connects to that name: this asks the other to end as soon as no task uses it.
"""

import errno
import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from emberflow._plan import deadlines
from emberflow._protocol.sockets import peer_process, readable
from emberflow._task.gpus import handle_of, load_nvml
from emberflow.errors import ClusterError

LEAST_FREE = 0.1
"""The share of a GPU's memory below which TensorFlow does not even start."""


def claim(device: str, timeout: float = deadlines.GPU_FREE_TIMEOUT) -> socket.socket:
    """Tell this host that this process scores on a GPU; wait until no other does. Closing the socket ends it."""
    deadline = time.monotonic() + timeout
    while True:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.bind(_name(device))
            sock.listen()
        except OSError as error:
            sock.close()
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return sock
        _await_end(device, deadline)


def await_free(devices: Sequence[str], timeout: float = deadlines.GPU_FREE_TIMEOUT, nvml: Any = None) -> None:
    """Return when neither scoring nor any other process fills these GPUs.

    Raises:
        ClusterError: One of them is still held at the deadline.
    """
    deadline = time.monotonic() + timeout
    for device in devices:
        _await_end(device, deadline)
    nvml = nvml or (load_nvml() if devices else None)
    if nvml is not None:
        for device in devices:
            _await_memory(nvml, device, deadline)


def _name(device: str) -> str:
    return f"\0emberflow-scoring-{os.getuid()}-{device}"


def _await_end(device: str, deadline: float) -> None:
    """Ask the process that scores on a GPU to end, and wait until it has."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        try:
            sock.connect(_name(device))
        except OSError:  # no process scores there
            return
        pid, user = peer_process(sock)
        if user != os.getuid():  # another user has taken the name: the memory of the GPU decides
            return
        if not _has_ended(sock, pid, deadline):
            raise ClusterError(
                f"A process that scores still holds the GPU. Received: GPU {device}, process {pid}.",
                fix="Wait until the jobs that score with gpus=... are over, or give them other executors.",
            )


def _has_ended(sock: socket.socket, pid: int, deadline: float) -> bool:
    """Wait for the end of the process itself: its GPU memory is free only then, some time after its sockets."""
    left = max(deadline - time.monotonic(), 0.0)
    try:
        watched = os.pidfd_open(pid)
    except OSError:  # it has just ended, or the kernel has no such thing
        return bool(readable([sock], left))
    with open(watched, closefd=True) as process:  # noqa: PTH123 - a descriptor has no path
        return bool(readable([process], left))


def _await_memory(nvml: Any, device: str, deadline: float) -> None:
    """Wait until the GPU has memory to start with; Spark gave it to this node alone."""
    while True:
        try:
            handle = handle_of(nvml, device)
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        except Exception:  # noqa: BLE001 - NVML may not know such a device; TensorFlow then reports it
            return
        if memory.free >= LEAST_FREE * memory.total:
            return
        if time.monotonic() >= deadline:
            raise ClusterError(
                f"The GPU must be free: Spark gave it to this node alone. Received: GPU {device} with "
                f"{memory.free >> 20} of {memory.total >> 20} MiB free; it is used by {_users(nvml, handle)}.",
                fix="End what else uses it (nvidia-smi shows it), or take this GPU out of Spark's discovery script.",
            )
        time.sleep(deadlines.GPU_MEMORY_POLL)


def _users(nvml: Any, handle: Any) -> str:
    found: list[Any] = []
    with suppress(Exception):
        found = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return (
        ", ".join(f"process {process.pid}" for process in found) or "processes that cannot be seen from here"
    )
