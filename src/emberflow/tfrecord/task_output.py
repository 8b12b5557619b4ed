"""The files that one task writes: one per partition folder, and a new one after recordsPerFile records."""

import uuid
from contextlib import AbstractContextManager, ExitStack
from pathlib import PurePosixPath
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from emberflow import storage
from emberflow.tfrecord.codec.encode import encode
from emberflow.tfrecord.codec.feature_columns import columns_of
from emberflow.tfrecord.compression import CODECS
from emberflow.tfrecord.input_files import folder_of
from emberflow.tfrecord.options import Options
from emberflow.tfrecord.publish import sync_folders
from emberflow.tfrecord.record_files import writing

_ROWS, _BYTES = 4096, 3 << 20
"""Upper limits of one encoding step: more would not stay in the processor's cache."""
_OPEN = 64
"""Files that a task keeps open at the same time; each needs a descriptor and a buffer."""


class TaskOutput(AbstractContextManager["TaskOutput"]):
    """Writes batches to files. An error in the block deletes them."""

    def __init__(self, *, folder: str, job: str, schema: Any, options: Options) -> None:
        self.names: list[str] = []
        self.records = 0
        self._folder = folder
        self._options = options
        self._stored = [field.name for field in schema if field.name not in options.partition_by]
        self._columns = columns_of(
            pa.schema([schema.field(name) for name in self._stored]), options.record_type
        )
        # Only the write and the partition: a repeated task replaces its files instead of adding others.
        self._stem = f"part-{_partition_number():05d}-{job}"
        self._attempt = uuid.uuid4().hex[:12]
        self._open: dict[str, _OutputFile] = {}
        self._numbers = 0

    @property
    def begun(self) -> tuple[str, ...]:
        """The files under their names of this attempt, relative to the folder."""
        return tuple(self._begun(name) for name in self.names)

    def write(self, batch: Any) -> None:
        """Write the rows of a batch to the files they belong to."""
        self.records += batch.num_rows
        if not self._options.partition_by:
            self._write_to("", batch.select(self._stored))
            return
        for folder, rows in _groups(batch, self._options.partition_by):
            self._write_to(folder, batch.select(self._stored).take(rows))

    def _write_to(self, folder: str, batch: Any) -> None:
        most = self._options.records_per_file
        together = max(1, min(_ROWS, _BYTES * batch.num_rows // max(batch.nbytes, 1)))
        start = 0
        while start < batch.num_rows:
            file = self._file(folder)
            count = min(batch.num_rows - start, together, most - file.records if most else together)
            rows = batch.slice(start, count)
            encoded = encode(rows, self._columns, self._options.record_type, self._options.doubles)
            file.write(encoded.data, count)
            start += count
            if most and file.records >= most:
                self._open.pop(folder).close()

    def _file(self, folder: str) -> "_OutputFile":
        if folder not in self._open:
            if len(self._open) >= _OPEN:  # the least recently used one
                self._open.pop(next(iter(self._open))).close()
            codec = self._options.compression or CODECS["none"]
            stem = f"{self._stem}-{self._numbers:03d}" if self._numbers else self._stem
            name = "/".join(filter(None, [folder, stem + codec.suffix]))
            self._numbers += 1
            self.names.append(name)
            self._open[folder] = _OutputFile(storage.join(self._folder, self._begun(name)), self._options)
        self._open[folder] = self._open.pop(folder)
        return self._open[folder]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._open.values():
            file.close()
        if kind is None:
            self._publish_local()
            return
        for name in self.begun:
            storage.delete(storage.join(self._folder, name))

    def _publish_local(self) -> None:
        """Move files on the executor's own disk into place, as the last step of a task."""
        if self._options.locality != "local":
            return
        for begun, name in zip(self.begun, self.names, strict=True):
            storage.rename(storage.join(self._folder, begun), storage.join(self._folder, name))
        sync_folders(self._folder, self.names)
        base = len(self._folder.rstrip("/"))
        for file in storage.list_files(
            self._folder
        ):  # of an earlier attempt that wrote more files than this one
            name = file.path[base:].strip("/")
            if PurePosixPath(name).name.startswith(self._stem) and name not in self.names:
                storage.delete(file.path)

    def _begun(self, name: str) -> str:
        """Return the name of a file while it is written: hidden where its folder is already the target."""
        if self._options.locality != "local":
            return f"{self._attempt}/{name}"
        folder, _, last = name.rpartition("/")
        return "/".join(filter(None, [folder, f".{last}.{self._attempt}.tmp"]))


class _OutputFile:
    """One file that is being written."""

    def __init__(self, path: str, options: Options) -> None:
        self.records = 0
        self._holding = ExitStack()
        self._stream = self._holding.enter_context(
            writing(path, options.compression or CODECS["none"], options.level)
        )

    def write(self, data: Any, records: int) -> None:
        self._stream.write(data)
        self.records += records

    def close(self) -> None:
        self._holding.close()


def _groups(batch: Any, keys: tuple[str, ...]) -> list[tuple[str, Any]]:
    """Return the rows of a batch by the folder that their partition values name."""
    texts = [pc.cast(batch.column(key), pa.string()) for key in keys]
    table = pa.table([*texts, pa.array(np.arange(batch.num_rows))], names=[*keys, "__row__"])
    grouped = table.group_by(list(keys), use_threads=False).aggregate([("__row__", "list")])
    rows = grouped.column("__row___list").combine_chunks()
    values = [grouped.column(key).to_pylist() for key in keys]
    return [
        (
            folder_of([(key, column[place]) for key, column in zip(keys, values, strict=True)]),
            rows[place].values,
        )
        for place in range(grouped.num_rows)
    ]


def _partition_number() -> int:
    from pyspark import TaskContext

    task = TaskContext.get()
    return int(task.partitionId()) if task is not None else 0
