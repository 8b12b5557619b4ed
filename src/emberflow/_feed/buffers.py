"""Memory for windows, used again as soon as TensorFlow has let go of it."""

import sys
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64  # TensorFlow takes an array over as it is if it begins at a multiple of this; else it copies
SMALL = 64 << 10  # bytes; below, fresh memory costs nothing
_KEPT = 16  # a window of one batch: some are filled, handed over, read ahead (`PREFETCH`) and used at a time
_SLACK = 4  # how many times larger than asked for memory may be, so that small arrays do not hold large ones


class Buffers:
    """Gives out arrays whose memory is taken again once nobody holds the array any more.

    A fresh array of some megabytes costs as much for the pages that the kernel has to clear as for the rows
    that are written to it.
    """

    def __init__(self) -> None:
        self._owners: list[NDArray[np.uint8]] = []
        self._lock = threading.Lock()

    def empty(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return an array whose content is undefined."""
        dtype = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        with self._lock:
            owner = self._free(size) if size >= SMALL else np.empty(size + ALIGNMENT, np.uint8)
            start = -owner.ctypes.data % ALIGNMENT
            # All views that are made of this one keep `owner` alive, and count as its references.
            rows: NDArray[Any] = owner[start : start + size].view(dtype).reshape(shape)
            return rows

    def _free(self, size: int) -> NDArray[np.uint8]:
        sizes = {index: self._owners[index].nbytes for index in _idle(self._owners)}
        fitting = [index for index, held in sizes.items() if size + ALIGNMENT <= held <= _SLACK * size]
        if fitting:
            return self._owners[min(fitting, key=sizes.__getitem__)]
        owner = np.empty(size + size // 8 + ALIGNMENT, np.uint8)
        if len(self._owners) < _KEPT:
            self._owners.append(owner)
        elif sizes:
            self._owners[min(sizes)] = owner  # it fits nothing that is asked for now
        return owner


def _references(owners: list[NDArray[np.uint8]], index: int) -> int:
    return sys.getrefcount(owners[index])


_ALONE = _references([np.empty(1, np.uint8)], 0)  # what an array counts that only its list refers to


def _idle(owners: list[NDArray[np.uint8]]) -> list[int]:
    """Return which of these arrays nobody else refers to."""
    return [index for index in range(len(owners)) if _references(owners, index) <= _ALONE]
