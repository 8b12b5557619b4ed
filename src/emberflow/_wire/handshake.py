"""Proof of a shared key over a fresh socket, before anything else is said on it.

The server speaks first; a stranger learns nothing but a random number:

    server -> client   magic, server nonce
    client -> server   client nonce, HMAC-SHA256(key, "client", purpose, both nonces)
    server -> client   HMAC-SHA256(key, "server", purpose, both nonces)

The direction and the purpose are part of what is signed, so an answer can be played back neither to its
sender nor to another service that holds the same key. All messages have a fixed length; nothing is parsed,
nothing is unpickled.
"""

import contextlib
import hmac
import queue
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator

from emberflow.errors import PeerError

LIMIT = 5.0  # seconds for the whole exchange, not for each read: a client that drips bytes is dropped too
_MAGIC = b"emberflow/1\n"
_NONCE = 32
_TAG = 32
Judged = tuple[socket.socket, Exception | None]
_PROVING_AT_ONCE = 64  # strangers can hold this many threads, each for LIMIT seconds


def prove_as_client(sock: socket.socket, key: bytes, purpose: str, *, limit: float = LIMIT) -> None:
    """Prove to the server that we hold `key`, and have it prove the same to us.

    Args:
        sock: A connected blocking socket; its own timeout is put back afterwards.
        key: The shared secret.
        purpose: What the connection is for; both sides must say the same.
        limit: Seconds for the whole exchange.

    Raises:
        PeerError: The other side is silent, gone, or does not hold the key.
    """
    with _Limited(sock, limit) as wire:
        hello = wire.read(len(_MAGIC) + _NONCE)
        if not hello.startswith(_MAGIC):
            raise _refusal(purpose, "it does not speak this protocol")
        nonces = secrets.token_bytes(_NONCE) + hello[len(_MAGIC) :]
        wire.write(nonces[:_NONCE] + _tag(key, b"client", purpose, nonces))
        if not hmac.compare_digest(wire.read(_TAG), _tag(key, b"server", purpose, nonces)):
            raise _refusal(purpose, "it holds another key")


def prove_as_server(sock: socket.socket, key: bytes, purpose: str, *, limit: float = LIMIT) -> None:
    """Let the client prove that it holds `key`, then prove the same to it.

    Args:
        sock: An accepted blocking socket; its own timeout is put back afterwards.
        key: The shared secret.
        purpose: What the connection is for; both sides must say the same.
        limit: Seconds for the whole exchange.

    Raises:
        PeerError: The other side is silent, gone, or does not hold the key.
    """
    with _Limited(sock, limit) as wire:
        nonce = secrets.token_bytes(_NONCE)
        wire.write(_MAGIC + nonce)
        answer = wire.read(_NONCE + _TAG)
        nonces = answer[:_NONCE] + nonce
        if not hmac.compare_digest(answer[_NONCE:], _tag(key, b"client", purpose, nonces)):
            raise _refusal(purpose, "it holds another key or wants another service")
        wire.write(_tag(key, b"server", purpose, nonces))


def admitted(
    listener: socket.socket, prove: Callable[[socket.socket], None], timeout: float
) -> Iterator[socket.socket]:
    """Yield the connections that pass `prove`, in the order in which they pass, until the timeout.

    Each connection is proven in a thread of its own, so that a silent client keeps nobody waiting.

    Args:
        listener: A listening socket. It stays open: the caller closes it when all are in.
        prove: Called with each accepted socket; raises PeerError to turn it away.
        timeout: Seconds until the iteration ends.
    """
    deadline = time.monotonic() + timeout
    with contextlib.closing(Door(prove)) as door:
        while (left := deadline - time.monotonic()) > 0:
            yield from (sock for sock, error in door.wait(listener, left) if error is None)


class Door:
    """Proves many connections at once, each in a thread of its own."""

    def __init__(self, prove: Callable[[socket.socket], None]) -> None:
        self._prove = prove
        self._judged: queue.SimpleQueue[Judged] = queue.SimpleQueue()
        self._bell, self._button = socket.socketpair()
        self._inside: set[socket.socket] = set()

    def judge(self, sock: socket.socket, prove: Callable[[socket.socket], None]) -> None:
        """Start to prove a connection; `wait` tells how it ended."""
        self._inside.add(sock)
        threading.Thread(target=self._judge, args=(sock, prove), name="emberflow-prove", daemon=True).start()

    def wait(self, listener: socket.socket, timeout: float) -> list[Judged]:
        """Wait for a new connection or for the end of a proof; return the connections that were proven.

        A connection comes with the error that it was turned away with, and is closed then, or with None.
        """
        has_seat = len(self._inside) < _PROVING_AT_ONCE
        watched = [self._bell, listener] if has_seat else [self._bell]
        ready, _, _ = select.select(watched, [], [], timeout)
        if listener in ready:
            self.judge(listener.accept()[0], self._prove)
        if self._bell not in ready:
            return []
        self._bell.recv(1)
        sock, error = self._judged.get()
        self._inside.discard(sock)
        return [(sock, error)]

    def close(self) -> None:
        """Drop whoever is still proving; a thread that waits for a silent client ends with its socket."""
        for sock in self._inside:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        self._bell.close()
        self._button.close()

    def _judge(self, sock: socket.socket, prove: Callable[[socket.socket], None]) -> None:
        failure: Exception | None = None
        try:
            prove(sock)
        except (PeerError, OSError) as error:
            failure = error
            sock.close()
        self._judged.put((sock, failure))
        with contextlib.suppress(OSError):  # the door is closed already: nobody listens
            self._button.send(b"!")


class _Limited:
    """A socket whose reads and writes share one deadline."""

    def __init__(self, sock: socket.socket, limit: float) -> None:
        self._sock = sock
        self._limit = limit
        self._deadline = time.monotonic() + limit
        self._timeout = sock.gettimeout()

    def __enter__(self) -> "_Limited":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is None:
            self._sock.settimeout(self._timeout)
        elif isinstance(error, OSError):
            raise PeerError(
                f"The other side did not finish the handshake within {self._limit:g} s. Received: {error!r}",
                "Look at the other side's log: it may have ended, or another program has its address.",
            ) from error

    def read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            self._sock.settimeout(self._left())
            part = self._sock.recv(size - len(parts))
            if not part:
                raise ConnectionResetError("the connection was closed during the handshake")
            parts += part
        return bytes(parts)

    def write(self, data: bytes) -> None:
        self._sock.settimeout(self._left())
        self._sock.sendall(data)

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time limit is over")
        return left


def _tag(key: bytes, direction: bytes, purpose: str, nonces: bytes) -> bytes:
    return hmac.digest(key, b"\0".join((_MAGIC, direction, purpose.encode(), nonces)), "sha256")


def _refusal(purpose: str, why: str) -> PeerError:
    return PeerError(
        f"The other side was refused: {why}. Received: purpose={purpose!r}",
        "Check that all nodes belong to the same run and attempt; keys are never shared between runs.",
    )
