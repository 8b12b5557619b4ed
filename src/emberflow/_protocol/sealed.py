"""Records that nobody on the way can read, change, repeat, reorder or insert: AES-GCM, with keys of each connection.

Both keys of a connection, one per direction, are derived (HKDF) from the attempt's key and the random numbers of both
sides in the handshake. The nonce of a record is its number in its direction: a record opens at its place only. It has
no header: its receiver knows its size, from the protocol or from an earlier record.
"""

from dataclasses import dataclass
from typing import Any

from emberflow.errors import PeerError

TAG = 16  # bytes that a record is longer than its content
CHUNK = 1 << 18  # bytes of content in a record of a long payload: they fit into the processor's cache
_KEY = 16  # bytes: AES-128, the length that Spark takes by default
_NONCE = 12  # bytes that GCM wants

TAMPERED = (
    "bytes that fail their authentication: they were changed, repeated, reordered or inserted on the way"
)
TAMPERED_FIX = "Look for a device or program that alters traffic between the two hosts, and run again."

Data = bytes | bytearray | memoryview


class TamperedError(PeerError):
    """What arrived is not what the other side has sent."""


class Sealer:
    """Seals the records of one direction, in their order. Threads must take turns."""

    def __init__(self, key: bytes) -> None:
        self._cipher = new_cipher(key)
        self._records = 0

    def seal(self, data: Data) -> bytes:
        """Return the next record."""
        sealed: bytes = self._cipher.encrypt(self._next_nonce(), data, None)
        return sealed

    def seal_into(self, data: memoryview, into: memoryview) -> memoryview:
        """Write the next record into a buffer; return that part of the buffer."""
        sealed = into[: data.nbytes + TAG]
        self._cipher.encrypt_into(self._next_nonce(), data, None, sealed)
        return sealed

    def _next_nonce(self) -> bytes:
        self._records += 1
        return nonce_of(self._records)


class Opener:
    """Opens the records of one direction, in their order.

    Args:
        key: The other side's key for this direction.
        peer: Who sends them, for errors.
    """

    def __init__(self, key: bytes, peer: str) -> None:
        self._cipher = new_cipher(key)
        self._peer = peer
        self._records = 0

    def open(self, record: Data) -> bytes:
        """Return the content of the next record; `TamperedError` if this is not it."""
        data = bytearray(len(record) - TAG)
        self.open_into(memoryview(record), memoryview(data))
        return bytes(data)

    def open_into(self, record: memoryview, into: memoryview) -> None:
        """Write the content of the next record into a buffer of its size."""
        from cryptography.exceptions import InvalidTag

        self._records += 1
        try:
            self._cipher.decrypt_into(nonce_of(self._records), record, None, into)
        except InvalidTag:
            raise TamperedError(
                f"What {self._peer} sends must arrive unchanged. Received: {TAMPERED}.", fix=TAMPERED_FIX
            ) from None


@dataclass(frozen=True)
class Seals:
    """Both directions of one connection, at one of its ends."""

    sealer: Sealer
    opener: Opener


def seals_of_client(key: bytes, purpose: str, nonces: bytes, peer: str) -> Seals:
    """Return the seals of the side that connected.

    Args:
        key: The shared secret.
        purpose: What the connection is for.
        nonces: The random numbers of both sides.
        peer: The other side, for errors.
    """
    to_server, to_client = _keys(key, purpose, nonces)
    return Seals(Sealer(to_server), Opener(to_client, peer))


def seals_of_server(key: bytes, purpose: str, nonces: bytes, peer: str) -> Seals:
    """Return the seals of the side that was connected to; the arguments are those of `seals_of_client`."""
    to_server, to_client = _keys(key, purpose, nonces)
    return Seals(Sealer(to_client), Opener(to_server, peer))


def _keys(key: bytes, purpose: str, nonces: bytes) -> tuple[bytes, bytes]:
    """Return the keys to the server and to the client."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    info = b"emberflow/1 records\0" + purpose.encode()
    both: bytes = HKDF(algorithm=SHA256(), length=2 * _KEY, salt=nonces, info=info).derive(key)
    return both[:_KEY], both[_KEY:]


def new_cipher(key: bytes) -> Any:
    """Return AES-GCM with a key."""
    # Imported here: a driver that only plans, and `emberflow --help`, need not wait for it.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def nonce_of(number: int) -> bytes:
    """Return the nonce of a record or block: each number is used once with a key."""
    return number.to_bytes(_NONCE, "big")
