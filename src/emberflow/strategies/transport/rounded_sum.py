"""Sums that travel as bfloat16: half of the bytes, added as float32; what rounding drops is sent in the next step.

A rank rounds what it sends: its part of a sum in the reduce-scatter, and in the all-gather the average of its own
block, of which it uses the rounded value too: all ranks have the same bits. Where it rounds it keeps the rest,
and adds that to its own gradient in the next step (error feedback): a sum is linear, so it does not matter at which
rank the rest of it comes in again.
"""

from typing import Any

import numpy as np

from emberflow.strategies.transport.circle import Circle, as_bytes
from emberflow.strategies.transport.circulant import reduce_rounds, spans
from emberflow.strategies.transport.interface import Array


class Residuals:
    """What rounding has dropped so far, of each bucket of one optimizer: in units of the average."""

    def __init__(self) -> None:
        self._by_bucket: dict[int, Array] = {}

    def of(self, bucket: int, size: int) -> Array:
        """Return the residual of a bucket, to be changed in place; zeros at first."""
        known = self._by_bucket.get(bucket)
        if known is None or known.size != size:
            known = self._by_bucket[bucket] = np.zeros(size, np.float32)
        return known


def average_rounded(circle: Circle, array: Array, residual: Array, total: float, tag: int) -> None:
    """Replace a float32 vector by its sum over all members, divided by `total`, rounded; the same bits on each.

    Args:
        circle: Who exchanges.
        array: This member's part of the sum.
        residual: What it has dropped before, as part of the average. Replaced by what it drops now.
        total: The sum of all weights, the same on all members. If 0 the average is 0, and nothing is sent.
        tag: Identifies what is summed.
    """
    if not total:
        array.fill(0)
        return
    count, mine = len(circle.members), circle.place
    starts = [place * array.size // count for place in range(count + 1)]
    array += residual * np.float32(total)
    residual.fill(0)
    for each in reduce_rounds(mine, count):
        wire = [_rounded(array[span], residual[span]) for span in _slices(each.sent, starts)]
        link = circle.links[each.link]
        link.send([as_bytes(piece) for piece in wire], tag)
        received = _slices(each.received, starts)
        link.expect(sum(span.stop - span.start for span in received) * _wire_type().itemsize)
        for span in received:
            piece = np.empty(span.stop - span.start, _wire_type())
            link.receive(as_bytes(piece))
            array[span] += piece.astype(np.float32)
        link.flush()
    residual /= np.float32(total)
    block = slice(starts[mine], starts[mine + 1])
    averages = np.empty(array.size, _wire_type())
    averages[block] = _rounded(array[block] / np.float32(total), residual[block])
    circle.gather_blocks(averages, starts, tag)
    np.copyto(array, averages.astype(np.float32))
    _drop_infinities(residual)


def _slices(blocks: tuple[int, ...], starts: list[int]) -> list[slice]:
    return [slice(begin, end) for begin, end in spans(blocks, starts)]


def _rounded(values: Array, residual: Array) -> Array:
    """Return rounded values, and add what is lost to the residual."""
    wire: Array = values.astype(_wire_type())
    residual += values - wire.astype(np.float32)
    return wire


def _drop_infinities(residual: Array) -> None:
    """Forget the rests of a step that overflowed: they would make every later step infinite too."""
    if not np.isfinite(residual.sum()):
        residual[~np.isfinite(residual)] = 0


def _wire_type() -> np.dtype[Any]:
    import ml_dtypes  # TensorFlow brings it

    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype
