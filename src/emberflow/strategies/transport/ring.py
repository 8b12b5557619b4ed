"""The authenticated socket ring: the transport for CPUs.

Each rank has two connections, from its left and to its right neighbour, authenticated by the run's key. A sum goes
around the ring once as a reduce-scatter and once as an all-gather, so that the bytes per rank do not grow with the
number of ranks. This file uses numpy arrays only; `sum` and `gather` import TensorFlow when they are called.
"""

import contextlib
import queue
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emberflow._feed.buffer_pool import BufferPool
from emberflow._plan import deadlines
from emberflow._protocol import sockets
from emberflow._protocol.acceptor import Acceptor
from emberflow._protocol.handshake import HandshakeTimeoutError
from emberflow._protocol.sealed import CHUNK
from emberflow._protocol.sealed_socket import SealedSocket
from emberflow.config import EXCHANGE_TIMEOUT, JOIN_TIMEOUT
from emberflow.errors import PeerError
from emberflow.strategies.transport.interface import Array, Tensor
from emberflow.strategies.transport.packed_arrays import pack
from emberflow.strategies.transport.ring_link import RingLink

_SMALL = 1 << 14  # bytes; up to here one round with all data is faster than two rounds with parts of it


@dataclass(frozen=True, kw_only=True)
class Listener:
    """A rank's listening socket, until its left neighbour has connected.

    Attributes:
        address: ``host:port``, which the other ranks must know.
    """

    address: str
    sock: socket.socket

    def close(self) -> None:
        """Stop listening. May be called twice."""
        self.sock.close()


class Ring:
    """Sums and gathers arrays and tensors over all ranks. Created by `Ring.listen`, then `Ring.connect`."""

    def __init__(self, rank: int, ranks: int, link: RingLink | None) -> None:
        self.rank = rank
        self.ranks = ranks
        self._link = link
        self._pool = BufferPool()
        self._scratch = memoryview(bytearray(CHUNK))

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
            left, right = _neighbours(listener, addresses, rank, key, timeout)
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

    def all_reduce(self, array: Array, tag: int = 0) -> None:
        """Replace a contiguous one-dimensional array by its sum over all ranks, the same bits on each.

        The tag identifies what is summed; ranks with different tags are out of step.
        """
        link = self._ready()
        if link is None or array.size == 0:
            return
        if array.nbytes <= _SMALL:
            self._sum_small(array, tag)
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

    def gather(self, tensor: Tensor) -> Tensor:
        """Return all ranks' slices one after the other in rank order; first dimensions may differ."""
        from emberflow.strategies.transport.ring_ops import gather_tensor

        return gather_tensor(self, tensor)

    def close(self) -> None:
        """Disconnect. May be called twice."""
        if self._link is not None:
            self._link.close()

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


def _purpose(rank: int, ranks: int) -> str:
    return f"ring {rank} -> {(rank + 1) % ranks} of {ranks}"


def _neighbours(
    listener: Listener, addresses: Sequence[str], rank: int, key: bytes, timeout: float
) -> tuple[SealedSocket, SealedSocket]:
    """Connect to the right neighbour while the left one connects to us; return both connections."""
    ranks = len(addresses)
    deadline = time.monotonic() + timeout
    arrived: queue.SimpleQueue[SealedSocket] = queue.SimpleQueue()
    purpose = _purpose((rank - 1) % ranks, ranks)
    left: SealedSocket | None = None
    with contextlib.ExitStack() as unless_joined:
        try:
            with contextlib.closing(Acceptor(listener.sock, key=key, purpose=purpose, admit=arrived.put)):
                right = _dial(addresses[(rank + 1) % ranks], rank, ranks, key, timeout)
                if right is not None:
                    unless_joined.callback(right.close)
                with contextlib.suppress(queue.Empty):
                    left = arrived.get(timeout=max(deadline - time.monotonic(), deadlines.SHORTEST_WAIT))
                    unless_joined.callback(left.close)
        finally:
            while not arrived.empty():  # we failed, or the neighbour has dialled twice
                arrived.get().close()
        if left is None or right is None:
            absent = [(rank - 1) % ranks] if left is None else []
            absent += [(rank + 1) % ranks] if right is None else []
            raise _missing(rank, {other: addresses[other] for other in absent}, timeout)
        unless_joined.pop_all()
    return left, right


def _dial(address: str, rank: int, ranks: int, key: bytes, timeout: float) -> SealedSocket | None:
    """Connect to the right neighbour, which listens already: all addresses are known only when all listen.

    It may not accept handshakes yet. Return None if it does not before the timeout.
    """
    host, port = sockets.host_and_port(address)
    try:
        return sockets.dial(host, port, key, _purpose(rank, ranks), timeout)
    except OSError as error:
        raise PeerError(
            f"Rank {(rank + 1) % ranks} could not be reached within {timeout:g} s. "
            f"Received: address={address!r}, {error}",
            "Check that the executors may connect to each other (firewall), or raise join_timeout.",
        ) from error
    except HandshakeTimeoutError:
        return None


def _missing(rank: int, missing: dict[int, str], timeout: float) -> PeerError:
    return PeerError(
        f"Rank {rank} was not connected to all neighbours within {timeout:g} s. Received: missing={missing}",
        f"Look at the log of rank {next(iter(missing))}, or raise join_timeout.",
    )
