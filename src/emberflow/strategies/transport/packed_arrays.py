"""Several arrays of one type in one buffer, so that they are exchanged together."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from emberflow._feed.buffer_pool import ALIGNMENT, BufferPool
from emberflow.strategies.transport.interface import Array


class Packing:
    """Where each of several arrays is in a buffer: one after the other, each aligned.

    Args:
        arrays: What is to be copied into the buffer.
        dtype: The type of the buffer.
        weights: Multiply the arrays on the way, by default by 1. By 0 all of an array is 0, also what is no number.
    """

    def __init__(self, arrays: Sequence[Array], dtype: np.dtype[Any], weights: Sequence[float] = ()) -> None:
        self.dtype = dtype
        self._arrays = arrays
        self._weights = weights or [1.0] * len(arrays)
        unit = ALIGNMENT // dtype.itemsize
        self._starts = [0]
        for array in arrays:
            self._starts.append(self._starts[-1] + -(-array.size // unit) * unit)

    @property
    def size(self) -> int:
        """How many elements the buffer has."""
        return self._starts[-1]

    @property
    def shapes(self) -> int:
        """A number that differs where arrays have other sizes."""
        return sum((place + 1) * array.size for place, array in enumerate(self._arrays))

    @property
    def first(self) -> int:
        """How many elements of the buffer the first array takes."""
        return self._starts[1]

    def copy_into(self, out: Array, begin: int = 0) -> None:
        """Copy the part of the buffer that begins here and is as long as `out`."""
        stop = begin + out.size
        for place, (array, weight) in enumerate(zip(self._arrays, self._weights, strict=True)):
            start, after = self._starts[place], self._starts[place + 1]
            if after <= begin or stop <= start:
                continue
            flat, end = array.reshape(-1), start + array.size
            if start < begin or stop < end:
                flat = flat[max(begin - start, 0) : max(stop - start, 0)]
            at = max(start - begin, 0)
            _copy(flat, out[at : at + flat.size], weight)
            if end < after:
                out[max(end - begin, 0) : after - begin] = (
                    0  # gaps are added too, and undefined bytes may be NaN
                )

    def new_buffer(self, pool: BufferPool) -> tuple[Array, list[Array]]:
        """Return a buffer whose content is undefined, and in it an aligned view of each array's shape."""
        whole = pool.empty((self.size,), self.dtype)
        starts = zip(self._arrays, self._starts, strict=False)
        return whole, [
            whole[start : start + math.prod(array.shape)].reshape(array.shape) for array, start in starts
        ]


def divide(array: Array, divisor: float, out: Array | None = None) -> None:
    """Divide in place, or into another array; by 0 gives 0."""
    out = array if out is None else out
    if not divisor:
        out.fill(0)
    elif divisor != 1:
        np.divide(array, array.dtype.type(divisor), out=out)
    elif out is not array:
        np.copyto(out, array)


def _copy(array: Array, out: Array, weight: float) -> None:
    if weight == 1:
        np.copyto(out, array)
    elif weight:
        np.multiply(array, out.dtype.type(weight), out=out)
    else:
        out.fill(0)
