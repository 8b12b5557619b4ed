"""A connection that carries arrays between nodes: a few fields as JSON, then the raw bytes of the arrays.

    kind, bytes of fields, bytes of arrays | fields | arrays

Header and fields are sealed records (`_protocol/sealed.py`), always. Arrays are where the run encrypts, and plain
bytes where it does not; they are never pickled.
"""

import contextlib
import json
import socket
import struct
from typing import Any

import numpy as np

from emberflow._protocol.byte_blocks import fill, receive_exactly
from emberflow._protocol.sealed import TAG
from emberflow._protocol.sealed_socket import SealedSocket, send_steadily
from emberflow._protocol.sockets import keep_alive
from emberflow.config import EXCHANGE_TIMEOUT
from emberflow.errors import PeerError
from emberflow.strategies.transport.interface import Array

# The layout of a model with a million variables fits; the length in a foreign frame usually does not.
MAX_FIELDS = 64 * 1024 * 1024
_HEADER = struct.Struct("!BxxxIQ")
_NO_ARRAYS = np.empty(0, np.uint8)

Fields = dict[str, Any]


class ArrayConnection:
    """One authenticated connection.

    Args:
        sock: The connected socket, which it closes.
        timeout: The attribute.
        encrypt: Whether arrays are encrypted; both sides must say the same.

    Attributes:
        timeout: Seconds without a byte after which an incomplete frame, in either direction, is a TimeoutError.
    """

    def __init__(
        self, sock: SealedSocket, timeout: float = EXCHANGE_TIMEOUT, *, encrypt: bool = False
    ) -> None:
        self._sock = sock
        self.timeout = timeout
        self._encrypts = encrypt
        keep_alive(sock)

    def send(self, kind: int, fields: Fields, arrays: Array = _NO_ARRAYS) -> None:
        """Send one frame."""
        text = json.dumps(fields).encode()
        sealer = self._sock.sealer
        head = sealer.seal(_HEADER.pack(kind, len(text), arrays.nbytes)) + sealer.seal(text)
        self._sock.settimeout(self.timeout)
        send_steadily(self._sock, memoryview(head))
        if self._encrypts:
            self._sock.send_chunks(arrays.data)
        elif arrays.nbytes:
            send_steadily(self._sock, arrays.data)

    def receive(self, wait: float | None = None) -> tuple[int, Fields, int]:
        """Wait for a frame; return its kind, its fields, and how many bytes of arrays follow.

        Args:
            wait: Seconds until it must begin. None waits while the other side is connected: its task ends a node
                that is stopped, and the kernel notices a host that is gone.
        """
        self._sock.settimeout(wait)
        first = receive_exactly(self._sock, 1)
        self._sock.settimeout(self.timeout)  # an incomplete frame must not block this thread for ever
        header = first + receive_exactly(self._sock, _HEADER.size + TAG - 1)
        kind, length, nbytes = _HEADER.unpack(self._sock.opener.open(header))
        if length > MAX_FIELDS:
            raise PeerError(
                f"The fields of a frame must be at most {MAX_FIELDS} bytes. Received: {length}.",
                fix="Check that all nodes run the same version of emberflow.",
            )
        return kind, json.loads(self._sock.receive_record(length)), nbytes

    def receive_arrays(self, nbytes: int, into: Array) -> None:
        """Receive the arrays of a frame into a buffer that must have exactly their size."""
        if nbytes != into.nbytes:
            raise PeerError(
                f"The arrays must have {into.nbytes} bytes. Received: {nbytes}.",
                fix="All workers must train the same model.",
            )
        if self._encrypts:
            self._sock.receive_chunks(into.data)
        else:
            fill(self._sock, into.data)

    def close(self) -> None:
        """Close the connection; a thread that waits for a frame gets an error."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
