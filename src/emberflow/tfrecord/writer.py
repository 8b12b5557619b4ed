"""Writing: tasks write files aside, the driver publishes those of the tasks that counted.

Each attempt of a task writes files of its own, so that a task that is repeated or speculated disturbs nobody.
Spark accepts one attempt of each; the driver moves its files into place and deletes the rest. Where renames are
atomic an overwriting job fills a folder beside the target and then the two change places.
"""

import uuid
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from emberflow import storage
from emberflow.errors import ConfigError, StorageError
from emberflow.tfrecord.columns import columns_of
from emberflow.tfrecord.options import Options
from emberflow.tfrecord.outfiles import OutFiles
from emberflow.tfrecord.paths import qualified
from emberflow.tfrecord.types import arrow_schema

SUCCESS = "_SUCCESS"
ASIDE = "_temporary"


@dataclass(frozen=True, kw_only=True)
class Written(WriterCommitMessage):
    """What one task has written: files relative to the job's folder aside."""

    files: tuple[str, ...]
    records: int


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
        is_local = self._options.locality == "local"
        files = OutFiles(
            folder=self._path if is_local else self._aside(),
            job=self._job,
            schema=self._arrow,
            options=self._options,
        )
        with files:
            for batch in iterator:
                files.write(batch)
        return Written(files=() if is_local else tuple(files.names), records=files.records)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the files of all tasks."""
        if self._options.locality == "local":
            return  # each task has put its files into place on its own machine
        names = [name for message in messages if isinstance(message, Written) for name in message.files]
        is_whole = self._overwrite and self._options.partition_overwrite == "static"
        if is_whole and storage.protocol_of(self._path) in storage.RENAMING:
            self._swap(names)
        else:
            self._move(names)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - Spark's signature
        """Delete what the tasks have written; what was there before stays."""
        if self._options.locality != "local":
            storage.delete(self._aside())

    def _aside(self) -> str:
        return storage.join(self._path, f"{ASIDE}-{self._job}")

    def _swap(self, names: Sequence[str]) -> None:
        """Replace the folder by the new one: complete before the old one goes."""
        name = self._path.rpartition("/")[2]
        fresh, old = (storage.sibling(self._path, f".{name}.{self._job}.{end}") for end in ("new", "old"))
        for each in names:
            storage.rename(storage.join(self._aside(), each), storage.join(fresh, each))
        storage.write_bytes(storage.join(fresh, SUCCESS), b"")
        if storage.exists(self._path):
            storage.rename(self._path, old)
        storage.rename(fresh, self._path)
        storage.delete(old)

    def _move(self, names: Sequence[str]) -> None:
        """Move the new files in; then, where it was asked for, delete the old ones."""
        before = [file.path for file in storage.list_files(self._path)] if self._overwrite else []
        folders = {name.rpartition("/")[0] for name in names}
        storage.delete(storage.join(self._path, SUCCESS))
        for each in names:
            storage.rename(storage.join(self._aside(), each), storage.join(self._path, each))
        storage.delete(self._aside())
        for path in before:
            inside = path[len(self._path.rstrip("/")) :].strip("/")
            is_touched = self._options.partition_overwrite == "static" or inside.rpartition("/")[0] in folders
            if is_touched and not inside.startswith(f"{ASIDE}-"):
                storage.delete(path)
        storage.write_bytes(storage.join(self._path, SUCCESS), b"")


def target_of(options: Options) -> str:
    """Return the folder to write to."""
    if len(options.paths) != 1:
        raise ConfigError(
            f"Expected one path to write to. Received: paths={list(options.paths)}.",
            fix="Give one: .save(path).",
        )
    return qualified(options.paths[0]).rstrip("/")


def check_columns(schema: Any, options: Options) -> None:
    """Check before anything runs that each column can be written; warn once where precision is lost."""
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
            "Expected a column besides those of the partitions. Received: none.",
            fix="Keep at least one column out of partition_by.",
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
            "writeLocality='local' adds files on each executor's own disk; nobody could replace them as one. "
            "Received: mode='overwrite'.",
            fix='Write to a new folder with mode("append").',
        )
    if not storage.is_local(path):
        raise ConfigError(
            f"writeLocality='local' needs a local path. Received: path={path!r}.",
            fix='Give a local path, or leave the option at "distributed".',
        )
