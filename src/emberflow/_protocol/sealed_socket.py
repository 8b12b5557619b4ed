"""A socket between two authenticated sides, with the seals of both directions; what is sent as records is protected.

The methods for records are for blocking sockets. Two places use the seals themselves: `frames`, whose messages arrive
in pieces, and the ring (`strategies/transport/ring_link.py`), which sends and receives at the same time.
"""

import socket

from emberflow._protocol.byte_blocks import fill, receive_exactly
from emberflow._protocol.sealed import CHUNK, TAG, Data, Seals


class SealedSocket(socket.socket):
    """A connected socket after its handshake; it takes over the descriptor of the socket that it is made of.

    Attributes:
        sealer: Seals what this side sends.
        opener: Opens what the other side sends.
    """

    def __init__(self, sock: socket.socket, seals: Seals) -> None:
        timeout = sock.gettimeout()
        super().__init__(fileno=sock.detach())
        self.settimeout(timeout)
        self.sealer = seals.sealer
        self.opener = seals.opener
        self._buffer: memoryview | None = None

    def send_record(self, data: Data) -> None:
        """Send one record."""
        send_steadily(self, memoryview(self.sealer.seal(data)))

    def receive_record(self, size: int) -> bytes:
        """Return the content of the next record, which has so many bytes."""
        return self.opener.open(receive_exactly(self, size + TAG))

    def receive_record_if_any(self, size: int) -> bytes | None:
        """Return the content of the next record; None when the other side has closed the connection before it."""
        first = self.recv(1)
        return self.opener.open(first + receive_exactly(self, size + TAG - 1)) if first else None

    def send_chunks(self, data: memoryview) -> None:
        """Send a long payload, whose size the other side knows, as records of `CHUNK` bytes."""
        for start in range(0, data.nbytes, CHUNK):
            send_steadily(self, self.sealer.seal_into(data[start : start + CHUNK], self._scratch()))

    def receive_chunks(self, into: memoryview) -> None:
        """Fill a buffer with what `send_chunks` sent from one of the same size."""
        for start in range(0, into.nbytes, CHUNK):
            content = into[start : start + CHUNK]
            record = self._scratch()[: content.nbytes + TAG]
            fill(self, record)
            self.opener.open_into(record, content)

    def _scratch(self) -> memoryview:
        if self._buffer is None:
            self._buffer = memoryview(bytearray(CHUNK + TAG))
        return self._buffer


def send_steadily(sock: socket.socket, view: memoryview) -> None:
    """Send all bytes; the socket's timeout is for each step, where `sendall` has one for everything."""
    while view.nbytes:
        view = view[sock.send(view) :]
