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

from emberflow._wire.sockets import keep_alive
from emberflow.errors import PeerError
from emberflow.strategies.combiners import Array

OPEN, PUSH, PULL, FINISH, LEAVE, ANSWER, REFUSAL = range(1, 8)
MAX_FACTS = 64 * 1024 * 1024
_HEADER = struct.Struct("!BxxxIQ")
_NOTHING = np.empty(0, np.uint8)

Facts = dict[str, Any]


def purpose_of(server: int) -> str:
    """Return what a connection to this server is for, for the handshake."""
    return f"periodic averaging, ps {server}"


class Wire:
    """One proven connection."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        sock.settimeout(None)
        keep_alive(sock)

    def send(self, kind: int, facts: Facts, arrays: Array = _NOTHING) -> None:
        """Send one frame, whole."""
        text = json.dumps(facts).encode()
        self._sock.sendall(_HEADER.pack(kind, len(text), arrays.nbytes) + text)
        if arrays.nbytes:
            self._sock.sendall(arrays.data)

    def receive(self) -> tuple[int, Facts, int]:
        """Wait for a frame; return its kind, its facts, and how many bytes of arrays follow."""
        kind, length, nbytes = _HEADER.unpack(self._exactly(_HEADER.size))
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
