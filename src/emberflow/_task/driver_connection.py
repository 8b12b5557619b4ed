"""The task's authenticated connections to the driver."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from emberflow._protocol import sockets
from emberflow._protocol.codec import Message
from emberflow._protocol.driver_messages import Admission, Join, OpenValues, Quit
from emberflow._protocol.frames import receive_one, send
from emberflow._protocol.sealed_socket import SealedSocket
from emberflow.errors import PeerError

PURPOSE = "node to driver"


def dial(
    address: Sequence[Any], key: bytes, rank: int, host: str, timeout: float, *, busy_timeout: float = 0.0
) -> SealedSocket:
    """Return an authenticated connection to the hub; OSError or PeerError if there is none."""
    return _dial(address, key, Join(rank, host), timeout, busy_timeout)


def is_admitted(driver: SealedSocket, timeout: float) -> bool:
    """Wait for the driver's answer to `Join`: whether this task runs the node of its rank.

    Raises:
        OSError: The driver has closed the connection, or does not answer in time.
    """
    driver.settimeout(timeout)
    answer = receive_one(driver)
    driver.settimeout(None)
    return isinstance(answer, Admission) and answer.is_granted


def stand_by(driver: SealedSocket) -> None:
    """Wait until the driver says `Quit` or is gone; another task of this rank runs the node.

    To return would be wrong: Spark takes the result of the task that returns first. So would be to raise: Spark
    counts that as a failure of the rank.
    """
    with suppress(OSError, PeerError):
        while not isinstance(receive_one(driver), Quit):
            pass


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
