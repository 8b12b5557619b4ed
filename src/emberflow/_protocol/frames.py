"""Messages on a stream: four bytes of length, then the message."""

import socket
import struct
from collections.abc import Iterator

from emberflow._protocol.codec import Message
from emberflow._protocol.messages import decode, encode
from emberflow.errors import PeerError

_HEADER = struct.Struct("!I")
MAX_FRAME = 64 * 1024 * 1024  # bytes; a longer one is not of this protocol, and must not fill the memory


def pack(message: Message) -> bytes:
    """Return one message as bytes of a stream."""
    body = encode(message)
    return _HEADER.pack(len(body)) + body


def send(sock: socket.socket, message: Message) -> None:
    """Send one message."""
    sock.sendall(pack(message))


class Frames:
    """Turns the bytes of one stream into messages, in whatever pieces they arrive."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield each message that is complete with `data`."""
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            (size,) = _HEADER.unpack_from(self._buffer)
            if size > MAX_FRAME:
                raise PeerError(
                    f"A message must be at most {MAX_FRAME} bytes. Received: size={size}.",
                    fix="Check that driver and executors run the same version of emberflow.",
                )
            end = _HEADER.size + size
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_HEADER.size : end])
            del self._buffer[:end]
            yield decode(body)


class Channel:
    """Sends and receives messages over one blocking socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._frames = Frames()
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
