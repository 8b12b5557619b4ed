"""The authenticated sockets between all ranks: the transport for CPUs.

Ranks form a ring, in which each has connections to those 1, 2, 4, ... places away, authenticated by the run's key. A
sum is a reduce-scatter and an all-gather (`circulant`), so that the bytes per rank do not grow with the number of
ranks, and the rounds only with its logarithm. Ranks of one host share memory (`host_sum`). This file uses numpy
arrays only; `sum`, `average` and `gather` import TensorFlow when they are called.
"""

import contextlib
import threading
from collections.abc import Sequence

import numpy as np

from emberflow._feed.buffer_pool import BufferPool
from emberflow._protocol import sockets
from emberflow.config import EXCHANGE_TIMEOUT, JOIN_TIMEOUT
from emberflow.errors import PeerError
from emberflow.strategies.transport.bucket_exchange import BucketExchange
from emberflow.strategies.transport.buckets import BUCKET_BYTES, ONE_BUCKET
from emberflow.strategies.transport.circle import Circle
from emberflow.strategies.transport.circles import Circles
from emberflow.strategies.transport.host_sum import HostSum
from emberflow.strategies.transport.interface import Array, Tensor
from emberflow.strategies.transport.packed_arrays import Packing, divide
from emberflow.strategies.transport.peers import Peers
from emberflow.strategies.transport.ring_joining import Listener, join, places_of
from emberflow.strategies.transport.ring_link import RingLink
from emberflow.strategies.transport.rounded_sum import Residuals, average_rounded

_HEAD_APART = 1 << 20  # bytes; from here on a small sum before it is cheaper than a pass that divides
_LEAST_ROUNDED = 1 << 12  # numbers; fewer are sent as they are: latency is all that they take


class Ring:
    """Sums, averages and gathers arrays and tensors over all ranks. Created by `Ring.listen`, then `Ring.connect`."""

    wire_dtypes = ("float32", "bfloat16")

    def __init__(
        self,
        peers: Peers,
        circle: Circle,
        host_sum: HostSum | None = None,
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        self.rank = peers.rank
        self.ranks = len(circle.members)
        self.peers = peers
        self._circle = circle
        self._host_sum = host_sum
        self._pool = BufferPool()
        self._links_in_use = threading.Lock()  # ops that TensorFlow does not order must not mix their frames
        self.bucket_bytes = bucket_bytes
        self.bucket_exchange = BucketExchange(self)

    @staticmethod
    def listen(host: str) -> Listener:
        """Listen on this interface only, at a free port."""
        sock = sockets.listen(host)
        return Listener(address=sockets.address_of(host, sock.getsockname()[1]), sock=sock)

    @classmethod
    def of_one(cls) -> "Ring":
        """Return a ring of one rank, which exchanges with nobody."""
        return cls(Peers(0, [""], EXCHANGE_TIMEOUT), Circle([0], 0, []))

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
        hosts: Sequence[str] = (),
    ) -> "Ring":
        """Join the ring: accept those to the left, dial those to the right, and stop listening.

        Args:
            listener: Our own listening socket, whose address is in `addresses` at our rank.
            rank: Our number.
            addresses: All ranks' addresses in rank order.
            key: The run's secret; connections without it are dropped and delay nobody.
            timeout: Seconds until all neighbours must be connected.
            receive_timeout: Seconds after which a rank that does not answer during training is an error.
            encrypt: Whether data are encrypted, not only authenticated at the start.
            hosts: Each rank's `host_key`, by which those are known that can share memory. None share it without.
        """
        circles = Circles(rank, hosts or [str(each) for each in range(len(addresses))])
        places = places_of(rank, circles.members)
        with contextlib.closing(listener):
            pairs = join(listener, places, rank=rank, addresses=addresses, key=key, timeout=timeout)
        peers = Peers(rank, addresses, receive_timeout)
        for place, (left, right) in zip(places, pairs, strict=True):
            circles.add(place, RingLink(peers, left=left, right=right, encrypt=encrypt))
        bucket_bytes = BUCKET_BYTES if circles.have_cores_to_spare() else ONE_BUCKET
        return cls(peers, circles.all, circles.host_sum(), bucket_bytes)

    @property
    def failure(self) -> PeerError | None:
        """Why the ring failed; every later call raises it."""
        return self.peers.failure

    def sum_arrays(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the sums of arrays of any types and shapes, one exchange for each type."""
        self._check()
        sums: dict[int, Array] = {}
        for dtype in dict.fromkeys(array.dtype for array in arrays):
            places = [place for place, array in enumerate(arrays) if array.dtype == dtype]
            views = self._sum(Packing([arrays[place] for place in places], dtype))
            sums |= dict(zip(places, views, strict=True))
        return [sums[place] for place in range(len(arrays))]

    def average_arrays(
        self, head: Array, arrays: Sequence[Array], residuals: Residuals | None = None
    ) -> list[Array]:
        """Return the sum of `head` and the averages of arrays of one type, weighted by the first number of `head`."""
        size = sum(array.nbytes for array in arrays)
        host_sum = self._host_sum
        if residuals is None and host_sum is not None and host_sum.has_everyone and size >= host_sum.least:
            return self._average_on_host(host_sum, head, arrays)
        if residuals is not None or size >= _HEAD_APART:
            (totals,) = self.sum_arrays([head])
            return [totals, *self.average_bucket(arrays, head, totals, 0, residuals)]
        with _overflowing():
            totals, *averages = self._sum(_with_head(head, arrays))
            for average in averages:
                divide(average, float(totals[0]))
        return [totals.astype(head.dtype), *averages]

    def _average_on_host(self, host_sum: HostSum, head: Array, arrays: Sequence[Array]) -> list[Array]:
        self._check()
        packing = _with_head(head, arrays)
        whole, (totals, *averages) = packing.new_buffer(self._pool)
        with self._links_in_use, _overflowing():
            host_sum.average(packing, whole, packing.shapes)
        return [totals.astype(head.dtype), *averages]

    def average_bucket(
        self, arrays: Sequence[Array], head: Array, totals: Array, bucket: int, residuals: Residuals | None
    ) -> list[Array]:
        """Return the averages of arrays of one type; the sum of all ranks' heads is known."""
        packing = Packing(arrays, arrays[0].dtype, [float(head[0])] * len(arrays))
        rounds = residuals is not None and packing.dtype == np.float32 and packing.size >= _LEAST_ROUNDED
        residual = residuals.of(bucket, packing.size) if residuals is not None and rounds else None
        with _overflowing():
            return self._sum(packing, bucket, float(totals[0]), residual)

    def all_gather(self, array: Array, tag: int = 0) -> list[Array]:
        """Return each rank's array, flat, in rank order; sizes may differ."""
        self._check()
        with self._links_in_use:
            return self._circle.all_gather(array, tag)

    def sum(self, tensors: list[Tensor]) -> list[Tensor]:
        """Return the sum of each tensor over all ranks, the same bits on each rank."""
        from emberflow.strategies.transport.ring_ops import sum_tensors

        return sum_tensors(self, tensors)

    def average(
        self, head: Tensor, tensors: list[Tensor], residuals: Residuals | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the sum of `head` and the average of each tensor, weighted by the first number of `head`."""
        from emberflow.strategies.transport.ring_ops import average_tensors

        return average_tensors(self, head, tensors, residuals)

    def gather(self, tensor: Tensor) -> Tensor:
        """Return all ranks' slices one after the other in rank order; first dimensions may differ."""
        from emberflow.strategies.transport.ring_ops import gather_tensor

        return gather_tensor(self, tensor)

    def abandon(self, what: str) -> PeerError:
        """Tell the other ranks that this one cannot continue; return the error for all later calls."""
        return self.peers.fail(self.rank, what)

    def close(self) -> None:
        """Disconnect. May be called twice."""
        self.peers.close()
        self.bucket_exchange.close()

    def _sum(
        self, packing: Packing, tag: int = 0, divisor: float = 1.0, residual: Array | None = None
    ) -> list[Array]:
        """Return the sums of the packed arrays over all ranks, divided; rounded on the way if there is a residual."""
        self._check()
        whole, views = packing.new_buffer(self._pool)
        tag += packing.shapes

        def over(circle: Circle) -> None:
            if residual is None:
                circle.all_reduce(whole, tag, divisor)
            else:
                average_rounded(circle, whole, residual, divisor, tag)

        with self._links_in_use:
            if self._host_sum is not None and whole.nbytes >= self._host_sum.least:
                self._host_sum.sum(packing, whole, tag, divisor, over)
            else:
                packing.copy_into(whole)
                over(self._circle)
        return views

    def _check(self) -> None:
        if self.peers.failure is not None:
            raise self.peers.failure


def _with_head(head: Array, arrays: Sequence[Array]) -> Packing:
    """Pack arrays of one type behind `head`, whose first number is their weight."""
    return Packing([head, *arrays], arrays[0].dtype, [1.0] + [float(head[0])] * len(arrays))


def _overflowing() -> np.errstate:
    """Let gradients overflow without a warning, as in TensorFlow."""
    return np.errstate(over="ignore", invalid="ignore")
