"""The task's authenticated connections to the driver."""

import socket
from collections.abc import Sequence
from typing import Any

from emberflow._protocol import sockets
from emberflow._protocol.frames import Message, send

PURPOSE = "node to driver"
VALUES = "values"  # what a connection says first that is not a node's own


def dial(
    address: Sequence[Any], key: bytes, rank: int, host: str, timeout: float, *, patience: float = 0.0
) -> socket.socket:
    """Return a proven connection to the hub, from the task's side; OSError or PeerError if there is none."""
    return _dial(address, key, {"join": rank, "host": host}, timeout, patience)


def dial_values(
    address: Sequence[Any], key: bytes, timeout: float, *, patience: float = 0.0
) -> socket.socket:
    """Return a proven connection for large values; the driver speaks first on it."""
    return _dial(address, key, {VALUES: True}, timeout, patience)


def _dial(
    address: Sequence[Any], key: bytes, first: Message, timeout: float, patience: float
) -> socket.socket:
    sock = sockets.dial(address[0], int(address[1]), key, PURPOSE, timeout, patience=patience)
    try:
        send(sock, first)
    except BaseException:
        sock.close()
        raise
    return sock
