"""Memory that TensorFlow and the ring share without copies."""

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_ALIGNMENT = 64  # of Eigen: arrays aligned so are not copied
_UNUSED = 3  # references to a buffer that nobody uses: the list's, the loop's and the count's own


class Buffers:
    """Buffers that TensorFlow uses in place, and that are used again when it has let them go.

    TensorFlow takes a returned array without a copy when it is aligned, so a buffer must not be written to
    while any view of it lives; the count of references to the buffer tells.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], list[Array]] = {}

    def lay_out(self, arrays: list[Array], dtype: np.dtype[Any]) -> tuple[Array, list[Array]]:
        """Return a buffer and in it a view for each array, of its shape and aligned."""
        unit = _ALIGNMENT // dtype.itemsize
        starts = [0]
        for array in arrays:
            starts.append(starts[-1] + -(-array.size // unit) * unit)
        buffer = self._free_buffer(dtype, starts[-1])
        views = [
            buffer[start : start + array.size].reshape(array.shape)
            for start, array in zip(starts, arrays, strict=False)
        ]
        return buffer, views

    def _free_buffer(self, dtype: np.dtype[Any], size: int) -> Array:
        kept = self._kept.setdefault((dtype.str, size), [])
        for buffer in kept:
            if sys.getrefcount(buffer) == _UNUSED:
                return buffer
        raw = np.zeros(size * dtype.itemsize + _ALIGNMENT, np.uint8)  # zeros: the gaps are summed too
        offset = -raw.ctypes.data % _ALIGNMENT
        buffer = np.frombuffer(raw.data[offset : offset + size * dtype.itemsize], dtype)
        kept.append(buffer)
        return buffer
