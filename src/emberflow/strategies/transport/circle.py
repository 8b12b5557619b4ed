"""Sums, gathers and barriers over some of the ranks, by the rounds of `circulant`."""

import itertools
from collections.abc import Sequence

import numpy as np

from emberflow._protocol.sealed import CHUNK
from emberflow.strategies.transport.circulant import Round, gather_rounds, reduce_rounds, spans
from emberflow.strategies.transport.interface import Array
from emberflow.strategies.transport.packed_arrays import divide
from emberflow.strategies.transport.ring_link import RingLink

_SMALL = 1 << 14  # bytes; up to here each member gets all data at once, and adds by itself
_SMALL_ALTOGETHER = 1 << 20  # bytes of all members
_NOTHING = np.empty(0, np.uint8)


class Circle:
    """The members of one circle, as one of them sees it.

    Args:
        members: Their ranks, in an order that is the same for all.
        rank: Our own.
        links: Our links to the members 1, 2, 4, ... places to the right and to the left.

    Attributes:
        place: Our place among the members.
    """

    def __init__(self, members: Sequence[int], rank: int, links: Sequence[RingLink]) -> None:
        self.members = list(members)
        self.place = self.members.index(rank)
        self.links = links
        self._scratch = memoryview(bytearray(CHUNK))

    def all_reduce(self, array: Array, tag: int = 0, divisor: float = 1.0) -> None:
        """Replace a contiguous one-dimensional array by its sum over all members, the same bits on each.

        The tag identifies what is summed; members with different tags are out of step. A sum is divided where it is
        complete, before it is sent to the others, so that each member divides only its own part.
        """
        count = len(self.members)
        if count == 1 or array.size == 0:
            divide(array, divisor)
            return
        if array.nbytes <= _SMALL and array.nbytes * count <= _SMALL_ALTOGETHER:
            self._sum_small(array, tag)
            divide(array, divisor)
            return
        starts = [place * array.size // count for place in range(count + 1)]
        for each in reduce_rounds(self.place, count):
            self._begin(each, array, starts, tag)
            for begin, end in spans(each.received, starts):
                self._add_into(array[begin:end], self.links[each.link])
            self.links[each.link].flush()
        divide(array[starts[self.place] : starts[self.place + 1]], divisor)
        self.gather_blocks(array, starts, tag)

    def all_gather(self, array: Array, tag: int = 0) -> list[Array]:
        """Return each member's array, flat; sizes may differ."""
        mine = np.ascontiguousarray(array).reshape(-1)
        sizes = self._gather_equal(np.array([mine.size], np.int64), tag)[:, 0]
        starts = [0, *np.cumsum(sizes).tolist()]
        whole = np.empty(starts[-1], mine.dtype)
        whole[starts[self.place] : starts[self.place + 1]] = mine
        self.gather_blocks(whole, starts, tag)
        return [whole[begin:end] for begin, end in itertools.pairwise(starts)]

    def barrier(self, tag: int = 0) -> None:
        """Return when all members have come to the same call."""
        self.gather_blocks(_NOTHING, [0] * (len(self.members) + 1), tag)

    def _sum_small(self, array: Array, tag: int) -> None:
        """Send everything to everyone and add in one order, which gives each member the same bits."""
        pieces = self._gather_equal(array, tag)
        np.copyto(array, pieces[0])
        for piece in pieces[1:]:
            np.add(array, piece, out=array)

    def _gather_equal(self, array: Array, tag: int) -> Array:
        """Return the arrays of all members, which have one size, as rows of a matrix."""
        count = len(self.members)
        matrix = np.empty((count, array.size), array.dtype)
        matrix[self.place] = array
        self.gather_blocks(matrix.reshape(-1), [place * array.size for place in range(count + 1)], tag)
        return matrix

    def gather_blocks(self, whole: Array, starts: Sequence[int], tag: int) -> None:
        """Fill a vector with the blocks of all members, each of which has written its own."""
        for each in gather_rounds(self.place, len(self.members)):
            self._begin(each, whole, starts, tag)
            for begin, end in spans(each.received, starts):
                self.links[each.link].receive(as_bytes(whole[begin:end]))
            self.links[each.link].flush()

    def _begin(self, each: Round, whole: Array, starts: Sequence[int], tag: int) -> None:
        """Begin to send, and wait for the frame of the member to the left."""
        link = self.links[each.link]
        link.send([as_bytes(whole[begin:end]) for begin, end in spans(each.sent, starts)], tag)
        expected = sum(end - begin for begin, end in spans(each.received, starts))
        link.expect(expected * whole.itemsize)

    def _add_into(self, part: Array, link: RingLink) -> None:
        step = CHUNK // part.itemsize
        for start in range(0, part.size, step):
            piece = part[start : start + step]
            chunk = self._scratch[: piece.nbytes]
            link.receive(chunk)
            np.add(piece, np.frombuffer(chunk, part.dtype), out=piece)


def as_bytes(array: Array) -> memoryview:
    """Return the memory of a contiguous array."""
    return array.view(np.uint8).data if array.size else memoryview(b"")
