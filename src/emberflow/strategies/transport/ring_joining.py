"""How a rank joins the ring: it accepts its left neighbour and dials the right one."""

import contextlib
import queue
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

from emberflow._plan import deadlines
from emberflow._protocol import sockets
from emberflow._protocol.acceptor import Acceptor
from emberflow._protocol.handshake import HandshakeTimeoutError
from emberflow._protocol.sealed_socket import SealedSocket
from emberflow.errors import PeerError


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


def _purpose(rank: int, ranks: int) -> str:
    return f"ring {rank} -> {(rank + 1) % ranks} of {ranks}"


def neighbours(
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
