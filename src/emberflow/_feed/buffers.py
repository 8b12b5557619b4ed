"""Memory for windows, used again as soon as TensorFlow has let go of it."""

import sys
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64  # TensorFlow takes an array over as it is if it begins at a multiple of this; else it copies
_KEPT = 8


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
            owner = self._free(size)
            start = -owner.ctypes.data % ALIGNMENT
            # All views that are made of this one keep `owner` alive, and count as its references.
            rows: NDArray[Any] = owner[start : start + size].view(dtype).reshape(shape)
            return rows

    def _free(self, size: int) -> NDArray[np.uint8]:
        for index in _idle(self._owners):
            if size + ALIGNMENT <= self._owners[index].nbytes:
                return self._owners[index]
        owner = np.empty(size + size // 8 + ALIGNMENT, np.uint8)
        idle = _idle(self._owners)
        if len(self._owners) < _KEPT:
            self._owners.append(owner)
        elif idle:
            self._owners[idle[0]] = owner  # too small for what is asked for now
        return owner


def _references(owners: list[NDArray[np.uint8]], index: int) -> int:
    return sys.getrefcount(owners[index])


_ALONE = _references([np.empty(1, np.uint8)], 0)  # what an array counts that only its list refers to


def _idle(owners: list[NDArray[np.uint8]]) -> list[int]:
    """Return which of these arrays nobody else refers to."""
    return [index for index in range(len(owners)) if _references(owners, index) <= _ALONE]
