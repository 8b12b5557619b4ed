"""Memory that the ranks of one host share: a file without a name, which each maps.

The first rank makes it, and the others open it by the first one's process and descriptor. So no path is left behind
when a process is killed, and the size of `/dev/shm`, small in containers, is no limit. Ranks that cannot do that (of
another user, or in a container of its own) exchange over sockets.
"""

import json
import mmap
import os
import secrets
from pathlib import Path

import numpy as np

from emberflow.strategies.transport.circle import Circle
from emberflow.strategies.transport.interface import Array

_NAME = "emberflow-ring"
_TOKEN = 32  # bytes at the beginning, by which a rank knows that it opened the right file
_HEAD = mmap.PAGESIZE


def share_memory(circle: Circle, size: int) -> Array | None:
    """Return bytes that all members of a circle share, one row for each; None on all if one of them cannot.

    Args:
        circle: The ranks of one host; all must call it.
        size: Bytes of one row.
    """
    members = len(circle.members)
    memory = _create(members * size) if circle.place == 0 else None
    found = circle.all_gather(np.frombuffer(memory.where if memory else b"", np.uint8))
    if memory is None:
        memory = _open(found[0].tobytes(), members * size)
    has_all = all(flag[0] for flag in circle.all_gather(np.array([memory is not None])))
    if memory is not None:
        os.close(memory.descriptor)
    if memory is None or not has_all:
        return None
    return np.frombuffer(memory.mapping, np.uint8, members * size, _HEAD).reshape(members, size)


class _Memory:
    """A mapped file, and where other processes find it."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.descriptor = descriptor
        self.mapping = mmap.mmap(descriptor, _HEAD + size)
        self.where = b""


def _create(size: int) -> _Memory | None:
    try:
        descriptor = os.memfd_create(_NAME)
        os.ftruncate(descriptor, _HEAD + size)
        memory = _Memory(descriptor, size)
    except OSError:
        return None
    token = secrets.token_bytes(_TOKEN)
    memory.mapping[:_TOKEN] = token
    memory.where = json.dumps([os.getpid(), descriptor, token.hex()]).encode()
    return memory


def _open(where: bytes, size: int) -> _Memory | None:
    """Open the first rank's file; None where there is none, or another one."""
    try:
        process, descriptor, token = json.loads(where)
        path = Path(f"/proc/{int(process)}/fd/{int(descriptor)}")
        if not str(path.readlink()).startswith(f"/memfd:{_NAME}"):
            return None
        mine = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    if os.fstat(mine).st_size == _HEAD + size:
        memory = _Memory(mine, size)
        if memory.mapping[:_TOKEN] == bytes.fromhex(token):
            return memory
    os.close(mine)
    return None
