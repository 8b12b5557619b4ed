"""Somebody on the way: forwards connections to a server, keeps what passes, and alters it where a test says so."""

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self

from emberflow._protocol import sockets

HANDSHAKE = 12 + 32 + 64 + 32  # bytes of both sides before anything else
Alter = Callable[[bytes], bytes]


class Wire:
    """Forwards to one port of this host, each direction on a thread of its own.

    Attributes:
        address: Where to connect instead.
        seen: All bytes that passed, the handshakes included.
        to_server: Changes the next bytes on the way to the server, once; it may be set at any time.
        to_client: The same for the way back.
    """

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listener = sockets.listen("127.0.0.1")
        self.port = int(self._listener.getsockname()[1])
        self.address = f"127.0.0.1:{self.port}"
        self.seen = bytearray()
        self.to_server: Alter | None = None
        self.to_client: Alter | None = None
        self._held: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for sock in self._held:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._held += [client, server]
                for source, sink, name in ((client, server, "to_server"), (server, client, "to_client")):
                    threading.Thread(target=self._forward, args=(source, sink, name), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, name: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 20):
                self.seen += data
                if alter := getattr(self, name):
                    setattr(self, name, None)
                    data = alter(data)
                sink.sendall(data)
                if alter is truncated:
                    break
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def truncated(data: bytes) -> bytes:
    """Leave out the end; the stream ends there."""
    return data[:-3]


def changed(data: bytes) -> bytes:
    """Flip one bit in the middle."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def repeated(data: bytes) -> bytes:
    """Send everything twice."""
    return data + data


def reordered(data: bytes) -> bytes:
    """Send the second half first."""
    middle = len(data) // 2
    return data[middle:] + data[:middle]


def preceded(data: bytes) -> bytes:
    """Insert bytes of our own."""
    return bytes(64) + data


ATTACKS = (changed, repeated, reordered, preceded)
