"""The spool: one shard as an uncompressed Arrow file on local disk, written once, then mapped; it has no name.

Where local files must be encrypted it is in memory instead: rows are read in any order, thousands at a time, so that
an encrypted file would have to be decrypted as a whole anyway.

The kernel frees the nameless file with the last process that holds it open, also after kill -9. Rows stay in the
order of arrival; the canonical order is that of their keys, and only the keys are sorted. So it needs eight bytes
of memory per row, however large the rows are.
"""

import errno
import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from emberflow._feed.arrays import KEY, RESERVED, without_views, word_view
from emberflow._feed.digest import add_digests, digest_of
from emberflow._feed.shard_facts import ColumnFacts, ShardFacts, add_facts, observe
from emberflow.errors import DataError, StorageError

CHUNK_BYTES = 32 << 20  # few large chunks make random access fast; this much is held while writing
MEMORY_MARGIN = 256 << 20  # bytes that a spool in memory leaves to the host
WIDE_ROW = 16 << 10  # bytes; rows of this size are found as fast in small chunks, and one copy is saved

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@dataclass(frozen=True, kw_only=True)
class SpoolFile:
    """An open spool without a name: its descriptor and the facts of its content. The holder closes it."""

    fd: int
    facts: ShardFacts

    def close(self) -> None:
        """Close the descriptor, which frees the disk space."""
        os.close(self.fd)


class SpoolWriter:
    """Writes record batches into a new spool. Use it as a context manager, or end it by `finish`.

    Args:
        folder: Where the file is; None keeps it in memory.
        limit: Most bytes of it.
        chunk_bytes: Bytes of one record batch of it.
    """

    def __init__(
        self, folder: str | Path | None, *, limit: int | None = None, chunk_bytes: int = CHUNK_BYTES
    ) -> None:
        self._folder = folder
        self._limit = limit
        self._chunk_bytes = chunk_bytes
        self._waiting: list[Any] = []
        self._waiting_bytes = 0
        self._fd = -1
        self._sink: Any = None
        self._writer: Any = None
        self._schema: Any = None
        self._rows = self._digest = 0
        self._columns: dict[str, ColumnFacts] = {}
        with self._translated():
            self._fd = os.memfd_create("emberflow-spool") if folder is None else _nameless_file(folder)
            # Arrow opens files by path only; with its own descriptor it writes without calling Python.
            self._sink = pa.OSFile(f"/proc/self/fd/{self._fd}", "wb")

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
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= self._chunk_bytes or batch.nbytes >= WIDE_ROW * batch.num_rows:
            self._flush()

    def finish(self) -> SpoolFile:
        """Write the end of the file; the caller then owns the descriptor."""
        with self._translated():
            self._flush()
            if self._writer is not None:
                self._writer.close()
            self._sink.close()
            size = os.fstat(self._fd).st_size
        self._check_limit(size)
        facts = ShardFacts(
            rows=self._rows,
            bytes=size,
            digest=f"{self._digest:016x}",
            schema=self._schema,
            columns=self._columns,
        )
        done, self._fd = SpoolFile(fd=self._fd, facts=facts), -1
        return done

    def abandon(self) -> None:
        """Drop what was written, unless the spool was finished."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._sink is not None and not self._sink.closed:
            with _ignoring_disk():
                self._sink.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abandon()

    def _flush(self) -> None:
        if not self._waiting:
            return
        batches, self._waiting, waiting_bytes, self._waiting_bytes = self._waiting, [], self._waiting_bytes, 0
        if self._folder is None:
            self._check_memory(waiting_bytes)
        with self._translated():
            if self._writer is None:
                self._writer = pa.ipc.new_file(self._sink, self._schema)
            whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
            self._writer.write_batch(whole)
            size = self._sink.tell()
        self._check_limit(size)

    def _check_memory(self, needed: int) -> None:
        """Refuse before the kernel ends a process of this host for want of memory."""
        available = _available_memory()
        if needed > available - MEMORY_MARGIN:
            raise DataError(
                "All rows of the shard must fit into memory, since Spark encrypts its local files "
                f"(spark.io.encryption.enabled). Received: {available >> 20} MB left after {self._rows} rows.",
                fix="Use more workers or larger executors, select fewer columns, or pass cache=False to stream the "
                "rows once.",
            )

    def _check_limit(self, size: int) -> None:
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
    """

    def __init__(self, file: SpoolFile, *, schema: Any = None) -> None:
        """Map the file; `schema` is that of the other ranks, for a shard without a batch."""
        facts = file.facts
        self.facts = facts
        self.rows = facts.rows
        self.schema = facts.schema if facts.schema is not None else schema
        self._chunks = _mapped_chunks(file) if facts.rows else []
        self.starts = np.cumsum([0, *(chunk.num_rows for chunk in self._chunks)])
        self.order = self._canonical_order()

    @property
    def chunks(self) -> list[Any]:
        """The record batches of the file, internal columns included."""
        return self._chunks

    def batches(self) -> Iterator[Any]:
        """Yield the rows as record batches in the order of arrival, zero copy."""
        for chunk in self._chunks:
            yield chunk.select([name for name in chunk.schema.names if not name.startswith(RESERVED)])

    def places(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places in the file of the rows at these canonical positions."""
        return positions if self.order is None else self.order[positions]

    def _canonical_order(self) -> NDArray[np.int64] | None:
        if not self._chunks or self._chunks[0].schema.get_field_index(KEY) < 0:
            return None
        keys = np.concatenate([word_view(chunk.column(KEY)) for chunk in self._chunks])
        steps = np.diff(keys)
        if (steps > 0).all():
            return None
        order = np.argsort(keys, kind="stable")
        if (np.diff(keys[order]) == 0).any():
            raise DataError(
                "Each row must arrive once. Received: two rows with one key in the shard.",
                fix="Run again; if it happens again, report it with the output of df.explain().",
            )
        return order


def _mapped_chunks(file: SpoolFile) -> list[Any]:
    size = os.fstat(file.fd).st_size
    if size < file.facts.bytes:  # reading past the end of a mapped file would kill the process
        raise _cut_off(f"{size} of {file.facts.bytes} bytes")
    buffer = pa.py_buffer(mmap.mmap(file.fd, size, access=mmap.ACCESS_READ))
    try:
        reader = pa.ipc.open_file(pa.BufferReader(buffer))
        chunks = [reader.get_batch(index) for index in range(reader.num_record_batches)]
    except (pa.ArrowInvalid, OSError) as error:
        raise _cut_off(str(error)) from error
    rows = sum(chunk.num_rows for chunk in chunks)
    if rows != file.facts.rows:
        raise _cut_off(f"{rows} of {file.facts.rows} rows")
    return chunks


def _cut_off(what: str) -> DataError:
    return DataError(
        f"The spool must be complete. Received: {what}.",
        fix="Check the local disk of this executor for errors, then run again.",
    )


def _available_memory() -> int:
    """Return how many bytes the kernel can give to processes of this host."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 1 << 62  # a kernel that does not say


def _nameless_file(folder: str | Path) -> int:
    """Open a new file without a name; where the file system needs a name, it is removed at once."""
    Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder, prefix="emberflow-spool-") as file:
        return os.dup(file.fileno())


@contextmanager
def _ignoring_disk() -> Iterator[None]:
    try:
        yield
    except OSError:
        return
