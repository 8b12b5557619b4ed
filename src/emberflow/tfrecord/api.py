"""The functions of `ef.tfrecord`: register the data source, read and write on every Spark, Examples in columns."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from emberflow import storage
from emberflow.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from emberflow.tfrecord.spark_source import TFRecordSource

Value = TypeVar("Value")

_MODES = ("error", "errorifexists", "append", "overwrite", "ignore")


def register(spark: "SparkSession") -> None:
    """Register the data source under both its names in a session that does not find it, or not its storage.

    Spark looks for installed data sources once, when the first one is used, with the Python of PYSPARK_PYTHON, or
    the `python3` of the PATH. Call this where emberflow was added later (``spark.addArtifact``), or where
    that Python has no emberflow and Spark raises DATA_SOURCE_NOT_FOUND. Call it, too, where ``fs.defaultFS`` or the
    keys of an object store are settings of the session (``spark.hadoop.*``): a source that Spark has found by itself
    knows the files of HADOOP_CONF_DIR only.
    """
    from emberflow._driver.interpreter import driver_python
    from emberflow._driver.spark_versions import DATA_SOURCES, check_offers
    from emberflow.tfrecord.spark_source import TFRecordSource, TFRecordsSource

    check_offers(
        spark, DATA_SOURCES, fix="Use ef.tfrecord.read(spark, path) and ef.tfrecord.write(df, path)."
    )
    with driver_python(spark):
        for source in (TFRecordSource, TFRecordsSource):
            spark.dataSource.register(_of_session(spark, source))


def _of_session(spark: "SparkSession", source: "type[TFRecordSource]") -> "type[TFRecordSource]":
    """Return a data source that knows its session's storage. A class that is made here travels by value, with it."""
    from emberflow._driver.paths import path_rules_of
    from emberflow._driver.storage_settings import storage_settings_of

    rules = path_rules_of(spark)
    # Where Spark Connect does not tell its default file system, the server's own files do.
    paths = rules if rules.default_fs else None
    known = {"session_paths": paths, "session_storage": storage_settings_of(spark)}
    return type(f"{source.__name__}OfSession", (source,), known)


def read(
    spark: "SparkSession",
    path: str,
    *,
    schema: "StructType | str | None" = None,
    options: Mapping[str, object] | None = None,
) -> "DataFrame":
    """Return the rows of TFRecord files, as ``spark.read.format("tfrecord")`` does, which needs Spark 4.0.

    Args:
        spark: The session.
        path: A file, folder, pattern or comma list.
        schema: The columns, as a StructType or as ``"image array<float>, label long"``; None infers them.
        options: The data source's options, such as ``{"recordType": "SequenceExample"}``.
    """
    from emberflow._driver.paths import resolve_path
    from emberflow._driver.spark_versions import DATA_SOURCES, offers, parse_schema
    from emberflow.tfrecord.input_files import split_list
    from emberflow.tfrecord.spark_source import TFRecordSource

    paths = [resolve_path(spark, each) for each in split_list(path)]
    path = ",".join(paths)
    if not offers(spark, DATA_SOURCES):
        from emberflow.tfrecord.plain_tasks import read_by_tasks

        kind: Any = parse_schema(schema) if isinstance(schema, str) else schema
        source = _of_session(spark, TFRecordSource)
        return read_by_tasks(spark, source({**texts(options), "path": path}), kind)
    _register_for(spark, paths)
    reader = spark.read.format("tfrecord").options(**texts(options))
    if schema is not None:
        reader = reader.schema(schema)

    def load() -> "DataFrame":
        frame = reader.load(path)
        _ = frame.schema  # Spark Connect looks for the data source when it is first asked
        return frame

    return _found(spark, load)


def _register_for(spark: "SparkSession", paths: Sequence[str]) -> None:
    """Register the data source with the session's settings, where they may be needed to open the paths."""
    if "HADOOP_CONF_DIR" in os.environ or not all(map(storage.is_local, paths)):
        register(spark)


def write(
    df: "DataFrame",
    path: str,
    *,
    mode: str = "error",
    partition_by: Sequence[str] = (),
    options: Mapping[str, object] | None = None,
) -> None:
    """Write a DataFrame as TFRecord, with modes and partition folders that ``df.write`` does not support here.

    Args:
        df: The rows.
        path: The folder.
        mode: What to do if the folder exists: "error" (the default), "append", "overwrite" or "ignore".
        partition_by: Columns whose values become folders ``key=value``; they are not stored in the records.
        options: The data source's options, such as ``{"compression": "gzip", "recordType": "SequenceExample"}``.
    """
    from emberflow._driver.paths import resolve_path

    path = resolve_path(df.sparkSession, path)
    if mode.lower() not in _MODES:
        raise ConfigError(f"Expected a mode, one of {_MODES}. Received: mode={mode!r}.", fix='mode="append"')
    is_new = mode.lower() in {"error", "errorifexists", "ignore"}
    if is_new and not _is_absent(df.sparkSession, path, is_error=mode.lower() != "ignore"):
        return
    given = {} if not partition_by else {"partitionColumns": json.dumps(list(partition_by))}
    if is_new:
        given["ifExists"] = "error"  # another program may have created it since the check
    _write(df, path, texts(options) | given, overwrite=mode.lower() == "overwrite")


def _write(df: "DataFrame", path: str, options: dict[str, str], *, overwrite: bool) -> None:
    from emberflow._driver.spark_versions import DATA_SOURCES, offers
    from emberflow.tfrecord.spark_source import TFRecordSource

    spark = df.sparkSession
    if not offers(spark, DATA_SOURCES):
        from emberflow.tfrecord.plain_tasks import write_by_tasks

        source = _of_session(spark, TFRecordSource)
        write_by_tasks(df, source({**options, "path": path}), overwrite=overwrite)
        return
    _register_for(spark, [path])
    writer = df.write.format("tfrecord").mode("overwrite" if overwrite else "append").options(**options)
    _found(spark, lambda: writer.save(path))


def _found(spark: "SparkSession", use: Callable[[], Value]) -> Value:
    """Use the data source; register it where Spark has looked for it with another Python."""
    try:
        return use()
    except Exception as error:
        if "[DATA_SOURCE_NOT_FOUND]" not in str(error):  # PySpark has no class for this error
            raise
        register(spark)
        return use()


def texts(options: Mapping[str, object] | None) -> dict[str, str]:
    """Return options as Spark passes them.

    >>> texts({"verifyCrc": False, "level": 9})
    {'verifyCrc': 'false', 'level': '9'}
    """
    given = (options or {}).items()
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in given}


def _is_absent(spark: "SparkSession", path: str, *, is_error: bool) -> bool:
    """Tell whether nothing is at a path, as an executor sees it; raise if a path that exists is an error."""
    import pyarrow as pa

    from emberflow._driver.interpreter import map_in_arrow

    settings = storage.current_settings()

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        storage.apply_settings(settings)
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"found": [storage.exists(path)]})

    (row,) = map_in_arrow(spark.range(1, numPartitions=1), look, "found boolean").collect()
    if row["found"] and is_error:
        raise StorageError(
            f"Expected nothing at the path. Received: path={path!r}, which exists.",
            fix='Choose another path, or mode="append", "overwrite" or "ignore".',
        )
    return not row["found"]


def to_example(
    struct: "Column | str",
    *,
    record_type: Literal["Example", "SequenceExample"] = "Example",
    doubles: Literal["float", "bytes"] = "float",
) -> "Column":
    """Return serialized Examples (or SequenceExamples) of a struct column, one feature per field.

    Args:
        struct: The struct, as ``struct("image", "label")``.
        record_type: The record that each row becomes.
        doubles: Whether doubles become 32 bit floats, or bytes that keep all 64 bits.
    """
    from emberflow.tfrecord.example_columns import example_column

    return example_column(struct, record_type, doubles)


def from_example(
    data: "Column | str",
    schema: "StructType | str",
    *,
    record_type: Literal["Example", "SequenceExample"] = "Example",
) -> "Column":
    """Return a struct column from a column of serialized Examples (or SequenceExamples).

    Args:
        data: The bytes.
        schema: The struct to create, as a StructType or as ``"image array<float>, label long"``.
        record_type: The records that the bytes hold.
    """
    from emberflow.tfrecord.example_columns import struct_column

    return struct_column(data, schema, record_type)
