"""A file that is encrypted on disk: blocks of AES-GCM, written once from beginning to end, then read at any position.

Each file has a random key of its own, which only memory holds: that of the process that writes, and of those it gives
the key to. The nonce of a block is its number, and the reader knows the size: a block that was changed, moved or
cut off is an error.
"""

import io
import mmap
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from emberflow._protocol.sealed import TAG, Data, new_cipher, nonce_of
from emberflow.errors import StorageError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BLOCK = 1 << 17  # bytes of content in a block: they fit into the processor's cache, and the call costs little
_FIX = "Look for errors of this executor's local disk and for programs that write to it, then run again."
_KEY = 16  # bytes: AES-128, the length that Spark takes by default


class SealedWriter(io.RawIOBase):
    """Encrypts what is written into an open file, whose descriptor stays the caller's.

    Attributes:
        key: What a reader needs; it must not be written to disk.
    """

    def __init__(self, fd: int) -> None:
        super().__init__()
        self.key = secrets.token_bytes(_KEY)
        self._fd = fd
        self._cipher = new_cipher(self.key)
        self._size = 0
        self._blocks = 0
        self._waiting = memoryview(bytearray(BLOCK))
        self._filled = 0
        self._sealed = memoryview(bytearray(BLOCK + TAG))

    def writable(self) -> bool:
        """Tell that it can be written to."""
        return True

    def tell(self) -> int:
        """Return how many bytes were written, before encryption."""
        return self._size

    def write(self, data: Data) -> int:  # type: ignore[override]
        """Add some bytes."""
        left = memoryview(data).cast("B")
        size = left.nbytes
        self._size += size
        while left.nbytes:
            if not self._filled and left.nbytes >= BLOCK:
                self._write_block(left[:BLOCK])
                left = left[BLOCK:]
                continue
            count = min(BLOCK - self._filled, left.nbytes)
            self._waiting[self._filled : self._filled + count] = left[:count]
            self._filled += count
            left = left[count:]
            if self._filled == BLOCK:
                self._filled = 0
                self._write_block(self._waiting)
        return size

    def finish(self) -> None:
        """Write the last block. Closing alone does not: the caller may have closed the descriptor before."""
        if self._filled:
            self._write_block(self._waiting[: self._filled])

    def _write_block(self, content: memoryview) -> None:
        sealed = self._sealed[: content.nbytes + TAG]
        self._cipher.encrypt_into(nonce_of(self._blocks), content, None, sealed)
        self._blocks += 1
        while sealed.nbytes:
            sealed = sealed[os.write(self._fd, sealed) :]


class _SealedBlocks(io.RawIOBase):
    """The content of a mapped file, one block at a time."""

    def __init__(self, blocks: memoryview, key: bytes, size: int, what: str) -> None:
        super().__init__()
        self._blocks = blocks
        self._cipher = new_cipher(key)
        self._size = size
        self._what = what
        self._position = 0
        self.failure: StorageError | None = None
        self._scratch = memoryview(bytearray(BLOCK))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Read the rest of the block that the position is in, or as much of it as fits."""
        into = memoryview(buffer).cast("B")
        number, start = divmod(self._position, BLOCK)
        length = min(BLOCK, self._size - number * BLOCK)
        count = max(0, min(length - start, into.nbytes))
        if not count:
            return 0
        if count == length:
            self._open_block(number, into[:count])
        else:
            self._open_block(number, self._scratch[:length])
            into[:count] = self._scratch[start : start + count]
        self._position += count
        return count

    def _open_block(self, number: int, into: memoryview) -> None:
        from cryptography.exceptions import InvalidTag

        start = number * (BLOCK + TAG)
        sealed = self._blocks[start : start + into.nbytes + TAG]
        try:
            self._cipher.decrypt_into(nonce_of(number), sealed, None, into)
        except InvalidTag:
            self.failure = StorageError(
                f"{self._what} must be read as it was written. Received: block {number + 1} of "
                f"{-(-self._size // BLOCK)} changed, which its authentication shows.",
                fix=_FIX,
            )
            raise self.failure from None


class SealedReader(io.BufferedReader):
    """The content of an encrypted file, at any position."""

    def __init__(self, blocks: _SealedBlocks) -> None:
        super().__init__(blocks, BLOCK)
        self._blocks = blocks

    @property
    def failure(self) -> StorageError | None:
        """The error of a block that was changed, for callers whose own library replaces it by another."""
        return self._blocks.failure


@dataclass(frozen=True, kw_only=True)
class LocalFile:
    """A file that one process leaves to another.

    Attributes:
        path: Where it is.
        size: Its bytes, before encryption.
        key: With which it is encrypted; None where it is not.
    """

    path: str
    size: int
    key: bytes | None = field(default=None, repr=False)

    def open(self) -> IO[bytes]:
        """Return the content."""
        file = Path(self.path).open("rb")  # noqa: SIM115 - the caller closes it
        if self.key is None:
            return file
        with file:
            return open_sealed(file.fileno(), self.key, self.size, self.path)


def sealed_size(size: int) -> int:
    """Return how many bytes of a disk so many bytes of content take."""
    return size + -(-size // BLOCK) * TAG


def open_sealed(fd: int, key: bytes, size: int, what: str) -> SealedReader:
    """Return the content of an encrypted file, to read at any position; its descriptor may be closed.

    Args:
        fd: The file.
        key: Its key.
        size: How many bytes were written, before encryption.
        what: The file's name in errors.
    """
    found, expected = os.fstat(fd).st_size, sealed_size(size)
    if found != expected:
        raise StorageError(
            f"{what} must be complete. Received: {found} of {expected} bytes.",
            fix=_FIX,
        )
    mapped = memoryview(mmap.mmap(fd, expected, access=mmap.ACCESS_READ) if expected else b"")
    return SealedReader(_SealedBlocks(mapped, key, size, what))
