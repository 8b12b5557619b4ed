"""The writer of a batch query: tasks write files into a temporary folder, and the driver publishes them.

Each attempt of a task writes into its own folder, so that repeated and speculative attempts do not interfere. Spark
accepts one attempt of each task; the driver moves its files into place, under names that follow from the write and
the partition alone, and deletes the rest. `publish` makes this atomic.
"""

import uuid
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StructType

from emberflow import storage
from emberflow.errors import ConfigError, StorageError
from emberflow.tfrecord.codec.feature_columns import columns_of
from emberflow.tfrecord.data_source_api import DataSourceArrowWriter, WriterCommitMessage
from emberflow.tfrecord.journal import SUCCESS, TEMPORARY_PREFIX, temporary_folder
from emberflow.tfrecord.options import Options
from emberflow.tfrecord.publish import publish, undo
from emberflow.tfrecord.spark_types import arrow_schema
from emberflow.tfrecord.task_output import TaskOutput


@dataclass(frozen=True, kw_only=True)
class TaskCommit(WriterCommitMessage):
    """The files that a task wrote, relative to the write's folder, each below the folder of the attempt."""

    files: tuple[str, ...]
    records: int


def published_names(messages: Sequence[WriterCommitMessage | None]) -> dict[str, str]:
    """Return the files of the accepted attempts, and their names in the target."""
    files = (name for message in messages if isinstance(message, TaskCommit) for name in message.files)
    return {name: name.partition("/")[2] for name in files}


class TFRecordWriter(DataSourceArrowWriter):
    """Writes a DataFrame as one job."""

    def __init__(self, schema: StructType, options: Options, *, overwrite: bool) -> None:
        self._options = options
        self._overwrite = overwrite
        self._path = target_of(options)
        self._arrow = arrow_schema(schema)
        self._job = uuid.uuid4().hex
        check_columns(self._arrow, options)
        _check_locality(options, self._path, overwrite=overwrite)
        if options.if_exists == "error" and storage.exists(self._path):
            raise StorageError(
                f"Expected nothing at the path. Received: path={self._path!r}, which exists.",
                fix='Choose another path, or mode="append", "overwrite" or "ignore".',
            )

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows of one task."""
        storage.apply_settings(self._options.storage)
        is_local = self._options.locality == "local"
        files = TaskOutput(
            folder=self._path if is_local else temporary_folder(self._path, self._job),
            job=self._job,
            schema=self._arrow,
            options=self._options,
        )
        with files:
            for batch in iterator:
                files.write(batch)
        return TaskCommit(files=() if is_local else files.begun, records=files.records)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the files of all tasks."""
        if self._options.locality == "local":
            return  # each task has published its files on its own machine
        storage.apply_settings(self._options.storage)
        moves = published_names(messages)
        publish(self._path, self._job, moves, self._replaced(moves.values()) if self._overwrite else [])

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - Spark's signature
        """Delete the files of the tasks and of a failed commit; the old rows stay."""
        if self._options.locality != "local":
            storage.apply_settings(self._options.storage)
            undo(self._path, self._job)

    def _replaced(self, names: Iterable[str]) -> list[str]:
        """Return the files that an overwriting job replaces: all, or those in the folders that it writes to."""
        folders = {name.rpartition("/")[0] for name in names}
        base = len(self._path.rstrip("/"))
        before = [file.path[base:].strip("/") for file in storage.list_files(self._path)]
        return [
            name
            for name in before
            if not name.startswith(TEMPORARY_PREFIX)
            and name != SUCCESS
            and (self._options.partition_overwrite == "static" or name.rpartition("/")[0] in folders)
        ]


def target_of(options: Options) -> str:
    """Return the folder to write to."""
    if len(options.paths) != 1:
        raise ConfigError(
            f"Expected one path to write to. Received: paths={list(options.paths)}.",
            fix="Pass one: .save(path).",
        )
    return options.paths[0].rstrip("/")


def check_columns(schema: Any, options: Options) -> None:
    """Check before the job starts that each column can be written; warn once where precision is lost."""
    names = set(options.partition_by)
    missing = sorted(names - set(schema.names))
    if missing:
        raise ConfigError(
            f"Expected partition columns of the DataFrame. Received: {missing}.",
            fix=f"Choose from {schema.names}.",
        )
    columns = columns_of(_without(schema, names), options.record_type)
    if not columns:
        raise ConfigError(
            "Expected a column that is not in partition_by. Received: none.",
            fix="Leave at least one column out of partition_by.",
        )
    narrowed = [column.name for column in columns if column.leaf in {"double", "decimal"}]
    if narrowed and options.doubles == "float":
        warnings.warn(
            f"TFRecord has no 64 bit fractions: columns {narrowed} are stored as 32 bit floats. "
            'Use .option("doubles", "bytes") to keep all 64 bits.',
            stacklevel=2,
        )


def _without(schema: Any, names: set[str]) -> Any:
    import pyarrow as pa

    return pa.schema([field for field in schema if field.name not in names])


def _check_locality(options: Options, path: str, *, overwrite: bool) -> None:
    if options.locality != "local":
        return
    if overwrite:
        raise ConfigError(
            "writeLocality='local' adds files on each executor's own disk, and cannot replace them atomically. "
            "Received: mode='overwrite'.",
            fix='Write to a new folder with mode("append").',
        )
    if not storage.is_local(path):
        raise ConfigError(
            f"writeLocality='local' needs a local path. Received: path={path!r}.",
            fix='Pass a local path, or leave the option at "distributed".',
        )
