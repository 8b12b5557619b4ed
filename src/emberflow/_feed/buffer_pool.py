"""Memory that TensorFlow uses in place, and that is used again as soon as TensorFlow has released it."""

import math
import sys
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64  # TensorFlow (Eigen) uses an array in place if it begins at a multiple of this; else it copies
SMALL = 64 << 10  # bytes; fresh memory below this size costs nothing
_KEPT = 16  # a window of one batch: some are filled, handed over, read ahead (`PREFETCH`) and used at a time
_SLACK = 4  # most times that a block is larger than the request: small arrays must not hold large blocks


class BufferPool:
    """Returns arrays whose memory is used again once nothing refers to the array any more.

    A fresh array of several megabytes is expensive: the kernel clears its pages, which costs as much as writing the
    rows. TensorFlow uses a returned array without a copy, so a block must not be written to while a view of it
    exists; the reference count of the block tells.
    """

    def __init__(self) -> None:
        self._blocks: list[NDArray[np.uint8]] = []
        self._lock = threading.Lock()

    def empty(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Return an aligned array whose content is undefined."""
        dtype = np.dtype(dtype)
        size = math.prod(shape) * dtype.itemsize
        with self._lock:
            block = self._free_block(size) if size >= SMALL else _aligned_block(size)
            # numpy makes `block` the base of this view and of all views of it: each is a reference to the block.
            rows: NDArray[Any] = block[:size].view(dtype).reshape(shape)
            return rows

    def _free_block(self, size: int) -> NDArray[np.uint8]:
        sizes = {index: self._blocks[index].nbytes for index in _unused(self._blocks)}
        fitting = [index for index, held in sizes.items() if size <= held <= _SLACK * size]
        if fitting:
            return self._blocks[min(fitting, key=sizes.__getitem__)]
        block = _aligned_block(size + size // 8)
        if len(self._blocks) < _KEPT:
            self._blocks.append(block)
        elif sizes:
            self._blocks[min(sizes)] = block  # the old one fits no present request
        return block


def _aligned_block(size: int) -> NDArray[np.uint8]:
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    # From a memoryview: a slice of `raw` would make `raw`, not the block, the base of all views.
    return np.frombuffer(raw.data[start : start + max(size, 1)], np.uint8)


def _references(blocks: list[NDArray[np.uint8]], index: int) -> int:
    return sys.getrefcount(blocks[index])


# The count of an array that only its list refers to. Measured by the same function, since it depends on how many
# references the interpreter itself holds during a call, which differs between versions of Python.
_UNUSED_COUNT = _references([np.empty(1, np.uint8)], 0)


def _unused(blocks: list[NDArray[np.uint8]]) -> list[int]:
    """Return the indices of the blocks that nothing else refers to."""
    return [index for index in range(len(blocks)) if _references(blocks, index) <= _UNUSED_COUNT]
