"""Several arrays of one type in one buffer, so that the ring exchanges them together."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from emberflow._feed.buffer_pool import ALIGNMENT, BufferPool
from emberflow.strategies.transport.interface import Array


def pack(arrays: Sequence[Array], dtype: np.dtype[Any], pool: BufferPool) -> tuple[Array, list[Array]]:
    """Copy arrays into one buffer; return the buffer, and in it an aligned view of each array's shape."""
    unit = ALIGNMENT // dtype.itemsize
    starts = [0]
    for array in arrays:
        starts.append(starts[-1] + -(-array.size // unit) * unit)
    buffer = pool.empty((starts[-1],), dtype)
    views = []
    for array, start, end in zip(arrays, starts[:-1], starts[1:], strict=True):
        view = buffer[start : start + array.size].reshape(array.shape)
        np.copyto(view, array)
        if end > start + array.size:
            buffer[start + array.size : end] = 0  # the ring adds the gaps too, and undefined bytes may be NaN
        views.append(view)
    return buffer, views
