"""The record batches of an encrypted spool: an Arrow file below the cipher."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from emberflow._feed.buffer_pool import BufferPool
from emberflow._protocol.sealed_file import SealedReader, SealedWriter, open_sealed


class SealedChunkWriter:
    """Writes record batches of one schema to an encrypted file.

    Attributes:
        key: With which it is encrypted.
    """

    def __init__(self, fd: int) -> None:
        self._sealed = SealedWriter(fd)
        self._sink = pa.PythonFile(self._sealed, "w")
        self._writer: Any = None
        self.key = self._sealed.key

    @property
    def written(self) -> int:
        """Bytes written, before encryption."""
        return int(self._sink.tell())

    def write(self, batch: Any) -> None:
        """Write a record batch as one chunk."""
        if self._writer is None:
            self._writer = pa.ipc.new_file(self._sink, batch.schema)
        self._writer.write_batch(batch)

    def finish(self) -> int:
        """Write the end of the file; return its size before encryption."""
        if self._writer is not None:
            self._writer.close()
        size = self.written
        self._sealed.finish()
        return size


def sealed_chunks(fd: int, key: bytes, size: int, name: str, memory: int) -> Sequence[Any]:
    """Return the record batches of an encrypted file: all of them decrypted now, if `memory` may hold them.

    Args:
        fd: The file.
        key: Its key.
        size: Its bytes before encryption.
        name: The name of its data, for errors.
        memory: Most bytes to hold.
    """
    file = open_sealed(fd, key, size, f"The spool of {name!r}")
    chunks = SealedChunks(file, pa.PythonFile(_PooledReads(file), "r"))
    return list(chunks) if size <= memory else chunks


class _PooledReads:
    """A file whose reads share memory: else the kernel clears each chunk's pages, and the cipher is cheaper."""

    closed = False

    def __init__(self, file: SealedReader) -> None:
        self._file = file
        self._buffers = BufferPool()
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int) -> NDArray[np.uint8]:
        into = self._buffers.empty((size,), np.uint8)
        return into[: self._file.readinto(into.data)]

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        """Do nothing: the chunks are read as long as anyone holds them."""


class SealedChunks(Sequence[Any]):
    """The record batches of an encrypted file, each decrypted when it is asked for, and all columns or only some."""

    def __init__(self, file: SealedReader, source: Any, columns: Sequence[int] = ()) -> None:
        self._file = file
        self._source = source  # one for all selections: it has the lock under which a read is at its position
        options = pa.ipc.IpcReadOptions(included_fields=list(columns))
        with self._naming_damage():
            self._reader = pa.ipc.open_file(source, options=options)

    def select(self, names: Iterable[str]) -> "SealedChunks":
        """Return the same with these columns only; the others are not decrypted."""
        columns = [self._reader.schema.get_field_index(name) for name in names]
        return SealedChunks(self._file, self._source, columns)

    def __len__(self) -> int:
        return int(self._reader.num_record_batches)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        if index >= len(self):
            raise IndexError(index)  # so that a loop over the chunks ends
        with self._naming_damage():
            return self._reader.get_batch(index)

    @contextmanager
    def _naming_damage(self) -> Iterator[None]:
        """Arrow turns an error of the file into one of its own, a page long."""
        try:
            yield
        except OSError:
            if self._file.failure is not None:
                raise self._file.failure from None
            raise
