"""Sums where several ranks are on one host: through shared memory on it, and by one rank of each between hosts.

Every rank copies a part of its numbers into its own memory, adds up one slice over all ranks of its host, and copies
all slices out of their memories. Parts follow each other so that one barrier per part is enough: before it a rank has
copied a part in and has added up its slice of the part before, after it it copies the latter out. A rank's memory has
room for three parts, since a slow rank may still copy out the last but one while the next one is filled. Sums are
copied out because TensorFlow may write into a tensor that nothing else refers to, and other ranks would see that.
"""

from collections.abc import Callable

import numpy as np

from emberflow.strategies.transport.circle import Circle
from emberflow.strategies.transport.interface import Array
from emberflow.strategies.transport.packed_arrays import Packing, divide

PART = 1 << 22  # bytes; fewer barriers, each of which waits until a busy core runs the thread
PARTS = 3
LEAST = 1 << 18  # bytes; below this the barriers take as long as sockets


class HostSum:
    """The ranks of one host, and the first ones of all hosts.

    Args:
        host: The circle of this host's ranks.
        memory: The bytes that they share, a row for each.
        leaders: The circle of the hosts' first ranks, if this is one of them.
        hosts: How many hosts there are.

    Attributes:
        least: Bytes from which on it is faster than sockets.
    """

    def __init__(self, host: Circle, memory: Array, leaders: Circle | None, hosts: int) -> None:
        self.least = LEAST
        self._host = host
        self._memory = memory.reshape(len(host.members), PARTS, -1)
        self._leaders = leaders
        self._hosts = hosts
        self._turn = 0

    def sum(
        self, packing: Packing, whole: Array, tag: int, divisor: float, between: Callable[[Circle], None]
    ) -> None:
        """Write the sum over all ranks, divided, into `whole`: the same bits on each rank.

        `between` sums and divides `whole` over a circle, that of the first ranks of all hosts.
        """
        if self._hosts == 1:
            self._sum_on_host(packing, whole, tag, divisor)
            return
        self._sum_on_host(packing, whole, tag, 1.0, collects=self._leaders is not None)
        if self._leaders is not None:
            between(self._leaders)
        self._spread(whole, tag)

    @property
    def has_everyone(self) -> bool:
        """Whether all ranks are on this host."""
        return self._hosts == 1

    def average(self, packing: Packing, whole: Array, tag: int) -> None:
        """Write the sum over all ranks of this host into `whole`; divide all but the first array by its first number.

        That is the sum of the weights, which takes no exchange of its own this way.
        """
        self._sum_on_host(packing, whole, tag, 1.0, head=packing.first)

    def _sum_on_host(
        self,
        packing: Packing,
        whole: Array,
        tag: int,
        divisor: float,
        *,
        collects: bool = True,
        head: int = 0,
    ) -> None:
        parts = self._parts_of(whole)
        rooms = [self._next_room(whole, part) for part in parts]
        mine = self._host.place
        for now in range(-1, len(parts) + 1):
            if now == 1 and head:
                np.copyto(whole[:head], rooms[0][0][:head])
                divisor = float(whole[0])
            if now >= 1 and collects:
                self._collect(rooms[now - 1], whole[parts[now - 1]], divisor, head if now == 1 else 0)
            if 0 <= now < len(parts):
                self._add_slice(rooms[now])
            if now + 1 < len(parts):
                packing.copy_into(rooms[now + 1][mine], parts[now + 1].start)
            if now < len(parts):
                self._host.barrier(tag + now)

    def _spread(self, whole: Array, tag: int) -> None:
        """Copy the first rank's numbers to the other ranks of the host."""
        for number, part in enumerate(self._parts_of(whole)):
            room = self._next_room(whole, part)[0]
            if self._host.place == 0:
                np.copyto(room, whole[part])
            self._host.barrier(tag + number)
            if self._host.place != 0:
                np.copyto(whole[part], room)

    def _parts_of(self, whole: Array) -> list[slice]:
        step = self._memory.shape[2] // whole.itemsize
        return [slice(start, min(start + step, whole.size)) for start in range(0, whole.size, step)]

    def _next_room(self, whole: Array, part: slice) -> list[Array]:
        """Return the memory of each rank for the next part."""
        count = part.stop - part.start
        self._turn = (self._turn + 1) % PARTS
        return [each[self._turn].view(whole.dtype)[:count] for each in self._memory]

    def _add_slice(self, rooms: list[Array]) -> None:
        """Add up this rank's slice in its own memory, which no other rank reads before the barrier."""
        mine = self._slice(rooms[0].size, self._host.place)
        total = rooms[self._host.place][mine]
        for place, room in enumerate(rooms):
            if place != self._host.place:
                np.add(total, room[mine], out=total)

    def _collect(self, rooms: list[Array], out: Array, divisor: float, begin: int) -> None:
        for place, room in enumerate(rooms):
            each = self._slice(out.size, place)
            each = slice(max(each.start, begin), max(each.stop, begin))
            divide(room[each], divisor, out[each])

    def _slice(self, size: int, place: int) -> slice:
        count = len(self._host.members)
        return slice(place * size // count, (place + 1) * size // count)
