"""Messages on a stream: four bytes of length, then the message.

Between hosts each of the two is a sealed record (`sealed`), so that a wrong length is noticed at once too. Between a
node and its task, which share a pair of sockets that no other process can open, they are not sealed.
"""

import socket
import struct
from collections.abc import Iterator

from emberflow._protocol.codec import Message
from emberflow._protocol.messages import decode, encode
from emberflow._protocol.sealed import TAG, Opener, Sealer
from emberflow._protocol.sealed_socket import SealedSocket
from emberflow.errors import PeerError

_HEADER = struct.Struct("!I")
MAX_FRAME = 64 * 1024 * 1024  # bytes; a longer one is not of this protocol, and must not fill the memory


def pack(message: Message, sealer: Sealer | None = None) -> bytes:
    """Return one message as bytes of a stream."""
    return pack_encoded(encode(message), sealer)


def pack_encoded(body: bytes, sealer: Sealer | None) -> bytes:
    """Return one message, which was encoded before, as bytes of a stream."""
    header = _HEADER.pack(len(body))
    return header + body if sealer is None else sealer.seal(header) + sealer.seal(body)


def send(sock: socket.socket, message: Message) -> None:
    """Send one message."""
    sock.sendall(pack(message, sock.sealer if isinstance(sock, SealedSocket) else None))


def frames_of(sock: socket.socket) -> "Frames":
    """Return what turns the bytes of this socket into messages."""
    return Frames(sock.opener if isinstance(sock, SealedSocket) else None)


class Frames:
    """Turns the bytes of one stream into messages, in whatever pieces they arrive.

    Args:
        opener: Opens the stream's records; None where it is not sealed.
    """

    def __init__(self, opener: Opener | None = None) -> None:
        self._opener = opener
        self._tag = TAG if opener else 0
        self._buffer = bytearray()
        self._size: int | None = None  # of the message whose header was read

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield each message that is complete with `data`."""
        self._buffer += data
        while True:
            if self._size is None:
                header = self._take(_HEADER.size)
                if header is None:
                    return
                self._size = _checked_size(header)
            body = self._take(self._size)
            if body is None:
                return
            self._size = None
            yield decode(body)

    def _take(self, size: int) -> bytes | None:
        """Return the next so many bytes, opened; None while they have not arrived."""
        end = size + self._tag
        if len(self._buffer) < end:
            return None
        taken = bytes(self._buffer[:end])
        del self._buffer[:end]
        return taken if self._opener is None else self._opener.open(taken)


def _checked_size(header: bytes) -> int:
    size = int(_HEADER.unpack(header)[0])
    if size > MAX_FRAME:
        raise PeerError(
            f"A message must be at most {MAX_FRAME} bytes. Received: size={size}.",
            fix="Check that driver and executors run the same version of emberflow.",
        )
    return size


def receive_one(sock: SealedSocket) -> Message:
    """Wait for one message and read nothing beyond it: other bytes may follow."""
    size = _checked_size(sock.receive_record(_HEADER.size))
    return decode(sock.receive_record(size))


class Channel:
    """Sends and receives messages over one blocking socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._frames = frames_of(sock)
        self._waiting: list[Message] = []

    def send(self, message: Message) -> None:
        """Send one message."""
        send(self._sock, message)

    def receive(self) -> Message:
        """Wait for the next message; EOFError when the other side is gone."""
        while not self._waiting:
            data = self._sock.recv(1 << 16)
            if not data:
                raise EOFError
            self._waiting.extend(self._frames.feed(data))
        return self._waiting.pop(0)
