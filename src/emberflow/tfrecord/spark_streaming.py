"""TFRecord files in streaming queries: each new file is read once, each micro-batch is written once."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from pyspark.sql.types import StructType

from emberflow import storage
from emberflow.errors import StorageError
from emberflow.tfrecord.data_source_api import (
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from emberflow.tfrecord.input_files import InputFile, find_files
from emberflow.tfrecord.journal import TEMPORARY_PREFIX, temporary_folder
from emberflow.tfrecord.options import Options
from emberflow.tfrecord.publish import sync_folders
from emberflow.tfrecord.spark_source import partitions_for, read_partition
from emberflow.tfrecord.spark_types import arrow_schema
from emberflow.tfrecord.spark_writer import TaskCommit, check_columns, published_names, target_of
from emberflow.tfrecord.task_output import TaskOutput

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # Spark 4.1 requests all new files at a time
    SupportsTriggerAvailableNow = object  # type: ignore[misc,assignment]
    ReadMaxFiles = None  # type: ignore[misc,assignment]

LOG = "_commits"


class TFRecordStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads new files.

    An offset holds the files that were seen, with their times, and the horizon: files older than the newest one by
    more than `maxFileAge` are never read. So the files of a micro-batch follow from its two offsets
    alone, also after a restart.
    """

    def __init__(self, schema: StructType, options: Options) -> None:
        self._schema = schema
        self._options = options
        self._bound: set[str] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset before the first file."""
        return {"horizon": 0, "seen": {}}

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any] | None = None, limit: "ReadLimit | None" = None
    ) -> dict[str, Any]:
        """Return the offset after the present files, or after as many as the limit allows."""
        start = start or self.initialOffset()
        fresh = [
            file
            for file in find_files(self._options)
            if file.path not in start["seen"]
            and _time(file) >= start["horizon"]
            and (self._bound is None or file.path in self._bound)
        ]
        fresh.sort(key=lambda file: (file.modified, file.path))
        if ReadMaxFiles is not None and isinstance(limit, ReadMaxFiles):
            fresh = fresh[: limit.max_files]
        if not fresh:
            return start
        seen = start["seen"] | {file.path: _time(file) for file in fresh}
        horizon = max(start["horizon"], max(seen.values()) - int(1000 * self._options.max_file_age))
        return {"horizon": horizon, "seen": {path: time for path, time in seen.items() if time >= horizon}}

    def getDefaultReadLimit(self) -> "ReadLimit":  # noqa: N802 - Spark's name
        """Return the largest number of files of a micro-batch."""
        return ReadMaxFiles(self._options.max_files) if self._options.max_files else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember the present files: the query ends after them."""
        self._bound = {file.path for file in find_files(self._options)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks for the files between two offsets."""
        wanted = set(end["seen"]) - set(start["seen"])
        if not wanted:
            return []
        files = [file for file in find_files(self._options) if file.path in wanted]
        missing = wanted - {file.path for file in files}
        if missing:
            raise StorageError(
                f"Files of this stream were deleted before they were read. Received: {sorted(missing)[:3]}.",
                fix="Keep files until the query has read them; start again with a new checkpoint if they are lost.",
            )
        return partitions_for(files, self._options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of one task as Arrow batches."""
        return read_partition(partition, self._schema, self._options)


class TFRecordStreamWriter(DataSourceStreamArrowWriter):
    """Writes each micro-batch once, even if Spark runs it several times.

    The files of a batch are moved into place under names with its number, then the batch is entered into a log.
    A batch that is in the log is not written again; what an interrupted commit left is deleted before the next try.
    """

    def __init__(self, schema: StructType, options: Options, *, overwrite: bool) -> None:
        self._options = options
        self._overwrite = overwrite
        self._path = target_of(options)
        self._arrow = arrow_schema(schema)
        # Batch numbers are those of one query: another query with its own checkpoint may write to the same folder.
        self._query = hashlib.sha256(options.checkpoint.encode()).hexdigest()[:8]
        check_columns(self._arrow, options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows of one task into the write's folder."""
        storage.apply_settings(self._options.storage)
        files = TaskOutput(
            folder=self._temporary(), job=self._query, schema=self._arrow, options=self._options
        )
        with files:
            for batch in iterator:
                files.write(batch)
        return TaskCommit(files=files.begun, records=files.records)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish the files of one micro-batch, unless that was done before."""
        storage.apply_settings(self._options.storage)
        if not storage.exists(self._entry(batchId)):
            before = [file.path for file in storage.list_files(self._path)]
            self._delete_published(batchId)
            moves = published_names(messages)
            final = {source: _marked(name, self._mark(batchId)) for source, name in moves.items()}
            for source, name in final.items():
                storage.rename(storage.join(self._temporary(), source), storage.join(self._path, name))
            sync_folders(self._path, final.values())
            if self._overwrite:
                self._delete_others(before)
            storage.write_bytes(self._entry(batchId), json.dumps({"files": list(final.values())}).encode())
        storage.delete(self._temporary())

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002
        """Delete the files of the tasks, and of a failed commit."""
        storage.apply_settings(self._options.storage)
        # In complete mode the previous rows may be deleted already: the rows of this batch are better than none.
        if not self._overwrite and not storage.exists(self._entry(batchId)):
            self._delete_published(batchId)
        storage.delete(self._temporary())

    def _entry(self, batch: int) -> str:
        return storage.join(self._path, LOG, self._query, f"{batch:010d}.json")

    def _mark(self, batch: int) -> str:
        return f"part-{self._query}-{batch:010d}-"

    def _delete_published(self, batch: int) -> None:
        for file in storage.list_files(self._path):
            if file.path.rpartition("/")[2].startswith(self._mark(batch)):
                storage.delete(file.path)

    def _delete_others(self, before: list[str]) -> None:
        base = self._path.rstrip("/")
        for path in before:
            if not path[len(base) :].strip("/").startswith((LOG, TEMPORARY_PREFIX)):
                storage.delete(path)

    def _temporary(self) -> str:
        return temporary_folder(self._path, self._query)


def _marked(name: str, mark: str) -> str:
    folder, _, last = name.rpartition("/")
    return "/".join(filter(None, [folder, mark + last.removeprefix("part-")]))


def _time(file: InputFile) -> int:
    return int(1000 * file.modified)
