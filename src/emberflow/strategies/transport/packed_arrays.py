"""Several arrays of one type in one buffer, so that the ring exchanges them together."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from emberflow._feed.buffer_pool import ALIGNMENT, BufferPool
from emberflow.strategies.transport.interface import Array


def pack(
    arrays: Sequence[Array], dtype: np.dtype[Any], pool: BufferPool, weights: Sequence[float] = ()
) -> tuple[Array, list[Array]]:
    """Copy arrays into one buffer; return the buffer, and in it an aligned view of each array's shape.

    Args:
        arrays: What to copy.
        dtype: The type of the copies.
        pool: Where the buffer comes from.
        weights: Multiply the arrays on the way, by default by 1. By 0 all of an array is 0, also what is no number.
    """
    unit = ALIGNMENT // dtype.itemsize
    starts = [0]
    for array in arrays:
        starts.append(starts[-1] + -(-array.size // unit) * unit)
    buffer = pool.empty((starts[-1],), dtype)
    views = []
    factors = weights or [1.0] * len(arrays)
    for array, weight, start, end in zip(arrays, factors, starts[:-1], starts[1:], strict=True):
        view = buffer[start : start + array.size].reshape(array.shape)
        _copy(array, view, weight)
        if end > start + array.size:
            buffer[start + array.size : end] = 0  # the ring adds the gaps too, and undefined bytes may be NaN
        views.append(view)
    return buffer, views


def divide(array: Array, divisor: float) -> None:
    """Divide in place; by 0 gives 0."""
    if divisor == 1:
        return
    if divisor:
        np.divide(array, array.dtype.type(divisor), out=array)
    else:
        array.fill(0)


def _copy(array: Array, view: Array, weight: float) -> None:
    if weight == 1:
        np.copyto(view, array)
    elif weight:
        np.multiply(array, view.dtype.type(weight), out=view)
    else:
        view.fill(0)
