"""The task's authenticated connections to the driver."""

from collections.abc import Sequence
from typing import Any

from emberflow._protocol import sockets
from emberflow._protocol.codec import Message
from emberflow._protocol.driver_messages import Join, OpenValues
from emberflow._protocol.frames import send
from emberflow._protocol.sealed_socket import SealedSocket

PURPOSE = "node to driver"


def dial(
    address: Sequence[Any], key: bytes, rank: int, host: str, timeout: float, *, busy_timeout: float = 0.0
) -> SealedSocket:
    """Return an authenticated connection to the hub; OSError or PeerError if there is none."""
    return _dial(address, key, Join(rank, host), timeout, busy_timeout)


def dial_values(
    address: Sequence[Any], key: bytes, timeout: float, *, busy_timeout: float = 0.0
) -> SealedSocket:
    """Return an authenticated connection for large values; the driver sends first on it."""
    return _dial(address, key, OpenValues(), timeout, busy_timeout)


def _dial(
    address: Sequence[Any], key: bytes, first: Message, timeout: float, busy_timeout: float
) -> SealedSocket:
    host, port = address
    sock = sockets.dial(host, int(port), key, PURPOSE, timeout, busy_timeout=busy_timeout)
    try:
        send(sock, first)
    except BaseException:
        sock.close()
        raise
    return sock
