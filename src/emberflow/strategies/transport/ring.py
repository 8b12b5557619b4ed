"""The authenticated socket ring: the transport for CPUs.

Each rank has two connections, from its left and to its right neighbour, authenticated by the run's key. A sum goes
around the ring once as a reduce-scatter and once as an all-gather, so that the bytes per rank do not grow with the
number of ranks. This file uses numpy arrays only; `sum` and `gather` import TensorFlow when they are called.
"""

import contextlib
from collections.abc import Sequence

import numpy as np

from emberflow._feed.buffer_pool import BufferPool
from emberflow._protocol import sockets
from emberflow._protocol.sealed import CHUNK
from emberflow.config import EXCHANGE_TIMEOUT, JOIN_TIMEOUT
from emberflow.errors import PeerError
from emberflow.strategies.transport.bucket_exchange import BucketExchange
from emberflow.strategies.transport.buckets import BUCKET_BYTES
from emberflow.strategies.transport.interface import Array, Tensor
from emberflow.strategies.transport.packed_arrays import divide, pack
from emberflow.strategies.transport.ring_joining import Listener, neighbours
from emberflow.strategies.transport.ring_link import RingLink

_SMALL = 1 << 14  # bytes; up to here one round with all data is faster than two rounds with parts of it


class Ring:
    """Sums and gathers arrays and tensors over all ranks. Created by `Ring.listen`, then `Ring.connect`."""

    def __init__(self, rank: int, ranks: int, link: RingLink | None) -> None:
        self.rank = rank
        self.ranks = ranks
        self._link = link
        self._pool = BufferPool()
        self._scratch = memoryview(bytearray(CHUNK))
        self.bucket_bytes = BUCKET_BYTES
        self.bucket_exchange = BucketExchange(self)

    @staticmethod
    def listen(host: str) -> Listener:
        """Listen on this interface only, at a free port."""
        sock = sockets.listen(host)
        return Listener(address=sockets.address_of(host, sock.getsockname()[1]), sock=sock)

    @classmethod
    def connect(
        cls,
        listener: Listener,
        *,
        rank: int,
        addresses: Sequence[str],
        key: bytes,
        timeout: float = JOIN_TIMEOUT,
        receive_timeout: float = EXCHANGE_TIMEOUT,
        encrypt: bool = False,
    ) -> "Ring":
        """Join the ring: accept the left neighbour, dial the right one, and stop listening.

        Args:
            listener: Our own listening socket, whose address is in `addresses` at our rank.
            rank: Our number.
            addresses: All ranks' addresses in rank order.
            key: The run's secret; connections without it are dropped and delay nobody.
            timeout: Seconds until both neighbours must be connected.
            receive_timeout: Seconds after which a rank that does not answer during training is an error.
            encrypt: Whether data are encrypted, not only authenticated at the start.
        """
        ranks = len(addresses)
        with contextlib.closing(listener):
            if ranks == 1:
                return cls(rank, 1, None)
            left, right = neighbours(listener, addresses, rank, key, timeout)
        link = RingLink(
            rank=rank,
            addresses=addresses,
            left=left,
            right=right,
            timeout=receive_timeout,
            encrypt=encrypt,
        )
        return cls(rank, ranks, link)

    @property
    def failure(self) -> PeerError | None:
        """Why the ring failed; every later call raises it."""
        return None if self._link is None else self._link.failure

    def all_reduce(self, array: Array, tag: int = 0, divisor: float = 1.0) -> None:
        """Replace a contiguous one-dimensional array by its sum over all ranks, the same bits on each.

        The tag identifies what is summed; ranks with different tags are out of step. A sum is divided where it is
        complete, before it is sent to the others, so that each rank divides only its own part.
        """
        link = self._ready()
        if link is None or array.size == 0:
            return
        if array.nbytes <= _SMALL:
            self._sum_small(array, tag)
            divide(array, divisor)
            return
        parts = [
            array[i * array.size // self.ranks : (i + 1) * array.size // self.ranks]
            for i in range(self.ranks)
        ]
        for hop in range(self.ranks - 1):
            part = parts[(self.rank - hop - 1) % self.ranks]
            link.send(_bytes(parts[(self.rank - hop) % self.ranks]), tag)
            link.expect(part.nbytes)
            self._add_into(part, link)
            link.flush()
        divide(parts[(self.rank + 1) % self.ranks], divisor)
        for hop in range(self.ranks - 1):
            part = parts[(self.rank - hop) % self.ranks]
            link.send(_bytes(parts[(self.rank - hop + 1) % self.ranks]), tag)
            link.expect(part.nbytes)
            link.receive(_bytes(part))
            link.flush()

    def sum_arrays(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the sums of arrays of any types and shapes, one exchange for each type."""
        self._ready()
        sums: dict[int, Array] = {}
        for dtype in dict.fromkeys(array.dtype for array in arrays):
            places = [place for place, array in enumerate(arrays) if array.dtype == dtype]
            whole, views = pack([arrays[place] for place in places], dtype, self._pool)
            sums |= dict(zip(places, views, strict=True))
            shapes = sum((place + 1) * arrays[place].size for place in places)
            self.all_reduce(whole, shapes)
        return [sums[place] for place in range(len(arrays))]

    def average_arrays(self, head: Array, arrays: Sequence[Array]) -> list[Array]:
        """Return the sum of `head` and the averages of arrays of one type, weighted by the first number of `head`."""
        weights = [1.0] + [float(head[0])] * len(arrays)
        with np.errstate(over="ignore", invalid="ignore"):  # as in TensorFlow: gradients may overflow
            whole, (totals, *averages) = pack([head, *arrays], arrays[0].dtype, self._pool, weights)
            self.all_reduce(whole, whole.size + len(arrays))
            for average in averages:
                divide(average, float(totals[0]))
        return [totals.astype(head.dtype), *averages]

    def average_bucket(self, arrays: Sequence[Array], weight: float, total: float, tag: int) -> list[Array]:
        """Return the averages of arrays of one type; the sum of all ranks' weights is known."""
        with np.errstate(over="ignore", invalid="ignore"):
            whole, averages = pack(arrays, arrays[0].dtype, self._pool, [weight] * len(arrays))
            self.all_reduce(whole, tag + whole.size, total)
        return averages

    def abandon(self, what: str) -> PeerError:
        """Tell the other ranks that this one cannot continue; return the error for all later calls."""
        assert self._link is not None  # noqa: S101 - one rank exchanges nothing
        return self._link.fail(self.rank, what)

    def all_gather(self, array: Array, tag: int = 0) -> list[Array]:
        """Return each rank's array, flat, in rank order; sizes may differ."""
        link = self._ready()
        pieces: list[Array] = [np.ascontiguousarray(array).reshape(-1)] * self.ranks
        if link is None:
            return pieces
        for hop in range(self.ranks - 1):
            link.send(_bytes(pieces[(self.rank - hop) % self.ranks]), tag)
            piece = np.empty(link.receive_size() // array.itemsize, array.dtype)
            link.receive(_bytes(piece))
            link.flush()
            pieces[(self.rank - hop - 1) % self.ranks] = piece
        return pieces

    def sum(self, tensors: list[Tensor]) -> list[Tensor]:
        """Return the sum of each tensor over all ranks, the same bits on each rank."""
        from emberflow.strategies.transport.ring_ops import sum_tensors

        return sum_tensors(self, tensors)

    def average(self, head: Tensor, tensors: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Return the sum of `head` and the average of each tensor, weighted by the first number of `head`."""
        from emberflow.strategies.transport.ring_ops import average_tensors

        return average_tensors(self, head, tensors)

    def gather(self, tensor: Tensor) -> Tensor:
        """Return all ranks' slices one after the other in rank order; first dimensions may differ."""
        from emberflow.strategies.transport.ring_ops import gather_tensor

        return gather_tensor(self, tensor)

    def close(self) -> None:
        """Disconnect. May be called twice."""
        if self._link is not None:
            self._link.close()
            self.bucket_exchange.close()

    def _ready(self) -> RingLink | None:
        if self._link is not None and self._link.failure is not None:
            raise self._link.failure
        return self._link

    def _add_into(self, part: Array, link: RingLink) -> None:
        step = CHUNK // part.itemsize
        for start in range(0, part.size, step):
            piece = part[start : start + step]
            chunk = self._scratch[: piece.nbytes]
            link.receive(chunk)
            np.add(piece, np.frombuffer(chunk, part.dtype), out=piece)

    def _sum_small(self, array: Array, tag: int) -> None:
        """Send everything to everyone and add in rank order, which gives each rank the same bits."""
        pieces = self.all_gather(array.copy(), tag)
        np.copyto(array, pieces[0])
        for piece in pieces[1:]:
            np.add(array, piece, out=array)


def _bytes(array: Array) -> memoryview:
    return array.view(np.uint8).data if array.size else memoryview(b"")
