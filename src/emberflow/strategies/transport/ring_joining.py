"""How a rank joins the others: it dials those to its right in each circle, while those to its left dial it."""

import contextlib
import json
import queue
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from emberflow._plan import deadlines
from emberflow._protocol import sockets
from emberflow._protocol.acceptor import Acceptor
from emberflow._protocol.handshake import HandshakeTimeoutError
from emberflow._protocol.sealed_socket import SealedSocket
from emberflow.errors import PeerError
from emberflow.strategies.transport.circulant import distances

Socket = tuple[int, SealedSocket]  # the other side's rank, and the connection to it
_INTRODUCTION = 64  # bytes that a rank sends first: the circle and the distance, padded


@dataclass(frozen=True, kw_only=True)
class Listener:
    """A rank's listening socket, until all who dial it have connected.

    Attributes:
        address: ``host:port``, which the other ranks must know.
    """

    address: str
    sock: socket.socket

    def close(self) -> None:
        """Stop listening. May be called twice."""
        self.sock.close()


@dataclass(frozen=True, kw_only=True)
class Place:
    """One link of one rank: a distance in a circle.

    Attributes:
        circle: The circle's number.
        distance: How many places to the left and to the right the neighbours are.
        left: The left neighbour's rank.
        right: The right neighbour's rank.
    """

    circle: int
    distance: int
    left: int
    right: int


def places_of(rank: int, circles: Sequence[Sequence[int]]) -> list[Place]:
    """Return the links that a rank has in circles of ranks, of which it may be a member or not.

    >>> [(place.left, place.right) for place in places_of(2, [[0, 1, 2, 3, 4]])]
    [(1, 3), (0, 4), (3, 1)]
    """
    places = []
    for number, members in enumerate(circles):
        mine = members.index(rank) if rank in members else -1
        for distance in distances(len(members)) if mine >= 0 else ():
            left, right = members[mine - distance], members[(mine + distance) % len(members)]
            places.append(Place(circle=number, distance=distance, left=left, right=right))
    return places


def join(
    listener: Listener,
    places: Sequence[Place],
    *,
    rank: int,
    addresses: Sequence[str],
    key: bytes,
    timeout: float,
) -> list[tuple[Socket, Socket]]:
    """Return the connections from the left and to the right of each place."""
    deadline = time.monotonic() + timeout
    arrived: queue.SimpleQueue[SealedSocket] = queue.SimpleQueue()
    left: dict[Place, SealedSocket] = {}
    right: dict[Place, SealedSocket] = {}
    with contextlib.ExitStack() as unless_joined:
        try:
            purpose = _purpose(rank, len(addresses))
            with contextlib.closing(Acceptor(listener.sock, key=key, purpose=purpose, admit=arrived.put)):
                for place in places:
                    dialled = _dial(addresses, place, rank, key, deadline)
                    if dialled is not None:
                        unless_joined.callback(dialled.close)
                        right[place] = dialled
                for place, accepted in _accepted(arrived, places, deadline):
                    unless_joined.callback(accepted.close)
                    left[place] = accepted
        finally:
            while not arrived.empty():  # we failed, or a neighbour has dialled twice
                arrived.get().close()
        absent = [place.left for place in places if place not in left]
        absent += [place.right for place in places if place not in right]
        if absent:
            raise _missing(rank, {other: addresses[other] for other in absent}, timeout)
        unless_joined.pop_all()
    return [((place.left, left[place]), (place.right, right[place])) for place in places]


def _purpose(rank: int, ranks: int) -> str:
    return f"ring to {rank} of {ranks}"


def _accepted(
    arrived: queue.SimpleQueue[SealedSocket], places: Sequence[Place], deadline: float
) -> Iterator[tuple[Place, SealedSocket]]:
    """Yield the connections from the left as they arrive, until there is one for each place."""
    expected = {_introduction(place): place for place in places}
    while expected:
        remaining = max(deadline - time.monotonic(), deadlines.SHORTEST_WAIT)
        with contextlib.suppress(OSError):  # it has left again
            try:
                sock = arrived.get(timeout=remaining)
            except queue.Empty:
                return
            sock.settimeout(remaining)
            place = expected.pop(sock.receive_record(_INTRODUCTION), None)
            if place is None:
                sock.close()
            else:
                yield place, sock


def _dial(
    addresses: Sequence[str], place: Place, rank: int, key: bytes, deadline: float
) -> SealedSocket | None:
    """Connect to the right neighbour, which listens already: all addresses are known only when all listen.

    It may not accept handshakes yet. Return None if it does not before the deadline.
    """
    host, port = sockets.host_and_port(addresses[place.right])
    timeout = max(deadline - time.monotonic(), deadlines.SHORTEST_WAIT)
    try:
        sock = sockets.dial(host, port, key, _purpose(place.right, len(addresses)), timeout)
    except OSError as error:
        raise PeerError(
            f"Rank {place.right} could not be reached within {timeout:g} s. "
            f"Received: address={addresses[place.right]!r}, {error}",
            "Check that the executors may connect to each other (firewall), or raise join_timeout.",
        ) from error
    except HandshakeTimeoutError:
        return None
    from_here = Place(circle=place.circle, distance=place.distance, left=rank, right=-1)
    sock.send_record(_introduction(from_here))
    return sock


def _introduction(place: Place) -> bytes:
    """Return what the left neighbour of a place says first."""
    return json.dumps([place.circle, place.distance, place.left]).encode().ljust(_INTRODUCTION)


def _missing(rank: int, missing: dict[int, str], timeout: float) -> PeerError:
    return PeerError(
        f"Rank {rank} was not connected to all neighbours within {timeout:g} s. Received: missing={missing}",
        f"Look at the log of rank {next(iter(missing))}, or raise join_timeout.",
    )
