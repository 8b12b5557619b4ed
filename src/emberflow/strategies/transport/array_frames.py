"""Frames with arrays between nodes that train at their own pace: a few facts as JSON, then raw bytes.

    kind, bytes of facts, bytes of arrays | facts | arrays

Nothing is said before both sides have proven the run's key, and arrays are never pickled.
"""

import contextlib
import json
import socket
import struct
from typing import Any

import numpy as np

from emberflow._protocol.sockets import keep_alive
from emberflow.config import EXCHANGE_TIMEOUT
from emberflow.errors import PeerError
from emberflow.strategies.transport.interface import Array

OPEN, PUSH, PULL, FINISH, LEAVE, ANSWER, REFUSAL = range(1, 8)
MAX_FACTS = 64 * 1024 * 1024
_HEADER = struct.Struct("!BxxxIQ")
_NOTHING = np.empty(0, np.uint8)

Facts = dict[str, Any]


def purpose_of(server: int) -> str:
    """Return what a connection to this server is for, for the handshake."""
    return f"periodic averaging, ps {server}"


class Wire:
    """One proven connection.

    Attributes:
        timeout: Seconds without a byte after which a frame that has begun, either way, is a TimeoutError.
    """

    def __init__(self, sock: socket.socket, timeout: float = EXCHANGE_TIMEOUT) -> None:
        self._sock = sock
        self.timeout = timeout
        keep_alive(sock)

    def send(self, kind: int, facts: Facts, arrays: Array = _NOTHING) -> None:
        """Send one frame, whole."""
        text = json.dumps(facts).encode()
        self._send(memoryview(_HEADER.pack(kind, len(text), arrays.nbytes) + text))
        if arrays.nbytes:
            self._send(arrays.data)

    def receive(self, wait: float | None = None) -> tuple[int, Facts, int]:
        """Wait for a frame; return its kind, its facts, and how many bytes of arrays follow.

        Args:
            wait: Seconds until it must begin. None waits for as long as the other side is connected: its task
                ends a node that is stopped, and the kernel notices a host that vanished.
        """
        self._sock.settimeout(wait)
        header = self._exactly(1)
        self._sock.settimeout(self.timeout)  # a frame that was cut must not hold this thread for ever
        kind, length, nbytes = _HEADER.unpack(header + self._exactly(_HEADER.size - 1))
        if length > MAX_FACTS:
            raise PeerError(
                f"A frame's facts must be at most {MAX_FACTS} bytes. Received: {length}.",
                fix="Check that all nodes run the same version of emberflow.",
            )
        return kind, json.loads(self._exactly(length)), nbytes

    def receive_arrays(self, nbytes: int, into: Array) -> None:
        """Receive the arrays of a frame into a buffer that must have exactly their size."""
        if nbytes != into.nbytes:
            raise PeerError(
                f"The arrays must have {into.nbytes} bytes. Received: {nbytes}.",
                fix="All workers must train the same model.",
            )
        self._fill(into.data)

    def close(self) -> None:
        """Hang up, also under a thread that waits here."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def _send(self, view: memoryview) -> None:
        self._sock.settimeout(self.timeout)
        while view.nbytes:  # `sendall` has one timeout for all, however much of it gets through
            view = view[self._sock.send(view) :]

    def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        self._fill(memoryview(data))
        return bytes(data)

    def _fill(self, view: memoryview) -> None:
        filled = 0
        while filled < view.nbytes:
            got = self._sock.recv_into(view[filled:])
            if not got:
                raise ConnectionResetError("the other side hung up")
            filled += got
