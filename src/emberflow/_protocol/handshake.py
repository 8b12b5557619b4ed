"""Mutual authentication by a shared key, before anything else is sent on a new connection.

The server sends first; an unauthenticated client learns nothing but a random number:

    server -> client   magic, server nonce
    client -> server   client nonce, HMAC-SHA256(key, "client", purpose, both nonces)
    server -> client   HMAC-SHA256(key, "server", purpose, both nonces), or zeros: refused

The direction and the purpose are part of what is signed, so an answer can be played back neither to its
sender nor to another service that holds the same key. All messages have a fixed length; nothing is parsed,
nothing is unpickled. A client with a wrong key receives the zeros; one whose connection is closed
without an answer was dropped because the server had too many connections, and may try again.

Both nonces also make the keys of this connection (`sealed`), with which everything after the handshake is protected.
"""

import hmac
import secrets
import socket
import time

from emberflow._plan import deadlines
from emberflow._protocol.sealed import Seals, seals_of_client, seals_of_server
from emberflow.errors import PeerError

_MAGIC = b"emberflow/1\n"
_NONCE = 32  # random bytes: so many that no nonce repeats
_TAG = 32  # bytes of HMAC-SHA256
ANSWER_SIZE = _NONCE + _TAG
REFUSED = bytes(_TAG)


class HandshakeClosedError(PeerError):
    """The other side closed the connection during the handshake; it may have had too many connections.

    Attributes:
        is_ours: Whether the other side had sent the greeting of this protocol before.
    """

    is_ours = False


class HandshakeTimeoutError(PeerError):
    """The other side did not complete the handshake before the deadline."""


class Challenge:
    """The server's side of one handshake: what to send, and how to verify the answer.

    Args:
        key: The shared secret.
        purpose: What the connection is for; both sides must say the same.
    """

    def __init__(self, key: bytes, purpose: str) -> None:
        self._key = key
        self._purpose = purpose
        self._nonce = secrets.token_bytes(_NONCE)
        self.greeting = _MAGIC + self._nonce

    def reply_to(self, answer: bytes) -> bytes:
        """Return the server's proof if the client's answer, of `ANSWER_SIZE` bytes, is right; else `REFUSED`."""
        nonces = answer[:_NONCE] + self._nonce
        if not hmac.compare_digest(answer[_NONCE:], _tag(self._key, b"client", self._purpose, nonces)):
            return REFUSED
        return _tag(self._key, b"server", self._purpose, nonces)

    def seals_after(self, answer: bytes, peer: str) -> Seals:
        """Return the seals of the connection, once the client's answer was right.

        Args:
            answer: The client's answer.
            peer: The client, for errors.
        """
        return seals_of_server(self._key, self._purpose, answer[:_NONCE] + self._nonce, peer)


def prove_as_client(
    sock: socket.socket,
    key: bytes,
    purpose: str,
    *,
    limit: float = deadlines.HANDSHAKE_TIMEOUT,
    peer: str = "the other side",
) -> Seals:
    """Prove to the server that this side holds `key`, and have the server prove the same.

    Args:
        sock: A connected blocking socket; its own timeout is put back afterwards.
        key: The shared secret.
        purpose: What the connection is for; both sides must say the same.
        limit: Seconds until the server must have sent its greeting; from then on it has at least `HANDSHAKE_TIMEOUT`.
        peer: The server, for errors after the handshake.

    Returns:
        The seals of the connection.

    Raises:
        HandshakeClosedError: The other side closed the connection before it had accepted or refused.
        HandshakeTimeoutError: The other side did not answer in time.
        PeerError: The other side does not hold the key.
    """
    with _Limited(sock, limit) as limited:
        greeting = limited.read(len(_MAGIC) + _NONCE)
        if not greeting.startswith(_MAGIC):
            raise _refusal(purpose, "it uses another protocol")
        limited.is_greeted()
        nonces = secrets.token_bytes(_NONCE) + greeting[len(_MAGIC) :]
        limited.write(nonces[:_NONCE] + _tag(key, b"client", purpose, nonces))
        if not hmac.compare_digest(limited.read(_TAG), _tag(key, b"server", purpose, nonces)):
            raise _refusal(purpose, "it holds another key or offers another service")
    return seals_of_client(key, purpose, nonces, peer)


class _Limited:
    """A socket whose reads and writes share one deadline."""

    def __init__(self, sock: socket.socket, limit: float) -> None:
        self._sock = sock
        self._started = time.monotonic()
        self._deadline = self._started + limit
        self._timeout = sock.gettimeout()
        self._is_greeted = False

    def __enter__(self) -> "_Limited":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is None:
            self._sock.settimeout(self._timeout)
        elif isinstance(error, ConnectionError):
            turned_away = HandshakeClosedError(
                f"The other side closed the connection during the handshake. Received: {error!r}",
                "Look at the other side's log: it may have ended, or have more connections than it can hold.",
            )
            turned_away.is_ours = self._is_greeted
            raise turned_away from error
        elif isinstance(error, OSError):
            limit = self._deadline - self._started
            raise HandshakeTimeoutError(
                f"The other side did not finish the handshake within {limit:g} s. Received: {error!r}",
                "Look at the other side's log: it may have ended, or another program has its address.",
            ) from error

    def is_greeted(self) -> None:
        """The other side uses this protocol: from now on it has at least `HANDSHAKE_TIMEOUT` seconds."""
        self._is_greeted = True
        self._deadline = max(self._deadline, time.monotonic() + deadlines.HANDSHAKE_TIMEOUT)

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
