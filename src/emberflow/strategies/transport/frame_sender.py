"""Frames to one neighbour over a socket that does not block: as much at a time as the kernel accepts."""

from collections.abc import Sequence

from emberflow._protocol.sealed import CHUNK, TAG
from emberflow._protocol.sealed_socket import SealedSocket


class FrameSender:
    """Sends one frame after the other: a header, which is a sealed record, and data.

    Args:
        sock: The connection.
        encrypt: Whether data are records too. Each is sealed when the kernel has accepted the one before it, so that
            sealing and sending overlap.
    """

    def __init__(self, sock: SealedSocket, *, encrypt: bool) -> None:
        self._sock = sock
        self._encrypts = encrypt
        self._record = memoryview(bytearray(CHUNK + TAG if encrypt else 0))
        self._unsent: list[memoryview] = []
        self._unsealed: list[memoryview] = []

    @property
    def is_busy(self) -> bool:
        """Whether some of the last frame is not sent yet."""
        return bool(self._unsent or self._unsealed)

    def begin(self, header: bytes, data: Sequence[memoryview] = ()) -> None:
        """Begin a frame when the one before is sent; `push` sends it. `data` must not change meanwhile.

        Records begin anew with each piece of data, none of which may be empty.
        """
        self._unsent = [memoryview(self._sock.sealer.seal(header))]
        if self._encrypts:
            self._unsealed = [
                piece[start : start + CHUNK] for piece in data for start in range(0, piece.nbytes, CHUNK)
            ]
            self._seal_chunk()
        else:
            self._unsent += data

    def push(self) -> None:
        """Send what the kernel accepts; BlockingIOError if that is nothing."""
        if not self._unsent:
            self._seal_chunk()
        sent = self._sock.sendmsg(self._unsent)
        while self._unsent and sent >= self._unsent[0].nbytes:
            sent -= self._unsent.pop(0).nbytes
        if self._unsent:
            self._unsent[0] = self._unsent[0][sent:]

    def _seal_chunk(self) -> None:
        if self._unsealed:
            self._unsent.append(self._sock.sealer.seal_into(self._unsealed.pop(0), self._record))
