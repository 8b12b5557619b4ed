"""The spool: one shard as an uncompressed file on local disk, written once, then mapped; it has no name.

A plain file holds rows as they came (`_feed/spool_pieces.py`). Where local files must be encrypted it is an encrypted
Arrow file (`_protocol/sealed_file.py`): a reader decrypts it once if all of it may be held in memory, else chunk by
chunk (`_feed/staged_rows.py`).

The kernel frees the nameless file with the last process that holds it open, also after kill -9. Rows stay in the
order of arrival; the canonical order is that of their keys, and only the keys are sorted. So it needs eight bytes
of memory per row, however large the rows are.
"""

import errno
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from emberflow._feed.arrays import KEY, RESERVED, without_views, word_view
from emberflow._feed.digest import add_digests, digest_of
from emberflow._feed.sealed_chunks import SealedChunks, SealedChunkWriter, sealed_chunks
from emberflow._feed.shard_facts import ColumnFacts, ShardFacts, add_facts, observe
from emberflow._feed.spool_pieces import PieceWriter, all_in_pieces, cut_off, mapped_chunks
from emberflow.errors import DataError, StorageError

CHUNK_BYTES = 32 << 20  # few large chunks make random access fast; this much is held while writing
PIECE_BYTES = (
    1 << 20
)  # of rows of which all columns are found without their chunk: they are written as they came
MEMORY = 1 << 30  # most bytes of an encrypted spool that its reader holds decrypted
WIDE_ROW = 16 << 10  # bytes; rows of this size are found as fast in small chunks, and one copy is saved

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@dataclass(frozen=True, kw_only=True)
class SpoolFile:
    """An open spool without a name: its descriptor and the facts of its content. The holder closes it.

    Attributes:
        fd: The descriptor.
        facts: What it holds.
        key: With which it is encrypted; None where it is not.
    """

    fd: int
    facts: ShardFacts
    key: bytes | None = field(default=None, repr=False)

    def close(self) -> None:
        """Close the descriptor, which frees the disk space."""
        os.close(self.fd)


class SpoolWriter:
    """Writes record batches into a new spool. Use it as a context manager, or end it by `finish`.

    Args:
        folder: Where the file is.
        limit: Most bytes of it.
        chunk_bytes: Bytes of one record batch of it.
        encrypts: Whether the file is encrypted.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        limit: int | None = None,
        chunk_bytes: int = CHUNK_BYTES,
        encrypts: bool = False,
    ) -> None:
        self._folder = folder
        self._limit = limit
        self._chunk_bytes = chunk_bytes
        self._waiting: list[Any] = []
        self._waiting_bytes = 0
        self._fd = -1
        self._schema: Any = None
        self._rows = self._digest = 0
        self._columns: dict[str, ColumnFacts] = {}
        with self._translated():
            self._fd = _nameless_file(folder)
        self._file = SealedChunkWriter(self._fd) if encrypts else PieceWriter(self._fd)

    def write(self, batch: Any) -> None:
        """Add the rows of a record batch."""
        batch = without_views(batch)
        if self._schema is None:
            self._schema = batch.schema
        if not batch.num_rows:
            return
        self._rows += batch.num_rows
        self._digest = add_digests(self._digest, digest_of(batch))
        self._columns = add_facts([self._columns, observe(batch)])
        size = batch.nbytes
        if size >= PIECE_BYTES and isinstance(self._file, PieceWriter) and all_in_pieces(batch):
            self._flush()
            self._write([batch])
            return
        self._waiting.append(batch)
        self._waiting_bytes += size
        if self._waiting_bytes >= self._chunk_bytes or size >= WIDE_ROW * batch.num_rows:
            self._flush()

    def finish(self) -> SpoolFile:
        """Write the end of the file; the caller then owns the descriptor."""
        with self._translated():
            self._flush()
            size = self._file.finish()
        self._check_limit()
        facts = ShardFacts(
            rows=self._rows,
            bytes=size,
            digest=f"{self._digest:016x}",
            schema=self._schema,
            columns=self._columns,
        )
        done, self._fd = SpoolFile(fd=self._fd, facts=facts, key=self._file.key), -1
        return done

    def abandon(self) -> None:
        """Drop what was written, unless the spool was finished."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abandon()

    def _flush(self) -> None:
        batches, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if batches:
            self._write(batches)

    def _write(self, batches: Sequence[Any]) -> None:
        with self._translated():
            self._file.write(batches[0] if len(batches) == 1 else pa.concat_batches(batches))
        self._check_limit()

    def _check_limit(self) -> None:
        size = self._file.written
        if self._limit is not None and size > self._limit:
            raise DataError(
                f"The spool of this shard must stay within `spool_limit`. "
                f"Received: spool_limit={self._limit} bytes, {size} bytes after {self._rows} rows.",
                fix="Raise spool_limit, use more workers, select fewer columns, or pass cache=False.",
            )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in _FULL:
                raise DataError(
                    "The spool needs room on local disk for all rows of the shard. Received: "
                    f"folder={str(self._folder)!r}, {os.strerror(error.errno)} after {self._rows} rows.",
                    fix="Pass spool_dir= on a larger disk, use more workers, select fewer columns, "
                    "or pass cache=False to stream the rows once without a spool.",
                ) from error
            raise StorageError(
                f"The spool must be writable. Received: folder={str(self._folder)!r}, {error}.",
                fix="Pass spool_dir= with a folder on local disk that the executor may write to.",
            ) from error


class Spool:
    """Reads a finished spool: its chunks in order of arrival, and the canonical order of its rows.

    The caller closes the file's descriptor; the mapping stays valid without it.

    Attributes:
        chunks: The record batches of the file, internal columns included.
        mapping: The bytes of the whole file; None where it is encrypted.
        memory: Most bytes of it that a reader may hold decrypted.
    """

    def __init__(
        self, file: SpoolFile, *, name: str = "train", schema: Any = None, memory: int = MEMORY
    ) -> None:
        """Map the file; `schema` is that of the other ranks, for a shard without a batch."""
        facts = file.facts
        self.facts = facts
        self.rows = facts.rows
        self.memory = memory
        self.schema = facts.schema if facts.schema is not None else schema
        self.chunks, self.mapping = self._open(file, name) if facts.rows else ([], None)
        self.starts, self.order = self._read_order()

    @property
    def is_held(self) -> bool:
        """Whether every chunk is mapped or in memory; else each use of a chunk decrypts it."""
        return not isinstance(self.chunks, SealedChunks)

    def bytes_per_row(self, columns: Iterable[str]) -> float:
        """Return how many bytes a row has in these columns, in the mean; where chunks are not held, about as many."""
        some = self.chunks if self.is_held else self.chunks[:1]
        part = sum(int(chunk.column(name).nbytes) for chunk in some for name in columns)
        if self.is_held:
            return part / self.rows
        return part / max(1, int(some[0].nbytes)) * self.facts.bytes / self.rows

    def batches(self) -> Iterator[Any]:
        """Yield the rows as record batches in the order of arrival, zero copy."""
        for chunk in self.chunks:
            yield chunk.select([name for name in chunk.schema.names if not name.startswith(RESERVED)])

    def places(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places in the file of the rows at these canonical positions."""
        return positions if self.order is None else self.order[positions]

    def _open(self, file: SpoolFile, name: str) -> tuple[Sequence[Any], NDArray[np.uint8] | None]:
        size = file.facts.bytes
        if file.key is None:
            return mapped_chunks(file.fd, size)
        return sealed_chunks(file.fd, file.key, size, name, self.memory), None

    def _read_order(self) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
        """Return where each chunk begins, and the order of all rows by their keys: None if they arrived in it."""
        if not self.rows:
            return np.zeros(1, np.int64), None
        has_keys = self.schema.get_field_index(KEY) >= 0
        chunks = self.chunks
        if isinstance(chunks, SealedChunks):
            chunks = chunks.select([KEY if has_keys else self.schema.names[0]])
        rows, keys = [0], []
        for chunk in chunks:
            rows.append(chunk.num_rows)
            if has_keys:
                keys.append(word_view(chunk.column(KEY)))
        starts = np.cumsum(rows)
        if starts[-1] != self.rows:
            raise cut_off(f"{starts[-1]} of {self.rows} rows")
        return starts, _canonical_order(np.concatenate(keys)) if has_keys else None


def _canonical_order(keys: NDArray[np.int64]) -> NDArray[np.int64] | None:
    if (np.diff(keys) > 0).all():
        return None
    order = np.argsort(keys, kind="stable")
    if (np.diff(keys[order]) == 0).any():
        raise DataError(
            "Each row must arrive once. Received: two rows with one key in the shard.",
            fix="Run again; if it happens again, report it with the output of df.explain().",
        )
    return order


def _nameless_file(folder: str | Path) -> int:
    """Open a new file without a name; where the file system needs a name, it is removed at once."""
    Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder, prefix="emberflow-spool-") as file:
        return os.dup(file.fileno())
