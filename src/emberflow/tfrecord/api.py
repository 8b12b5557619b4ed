"""The functions of `ef.tfrecord`: register the data source, write with every mode, Examples in columns."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from emberflow import storage
from emberflow.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_MODES = ("error", "errorifexists", "append", "overwrite", "ignore")


def register(spark: "SparkSession") -> None:
    """Register the data source under both its names in a session that does not find it.

    Spark looks for installed data sources once, when the first one is used, with the Python of PYSPARK_PYTHON, or
    the `python3` of the PATH. Call this where emberflow was added later (``spark.addArtifact``), or where
    that Python has no emberflow and Spark raises DATA_SOURCE_NOT_FOUND.
    """
    from emberflow._driver.interpreter import driver_python
    from emberflow.tfrecord.spark_source import TFRecordSource, TFRecordsSource

    with driver_python(spark):
        spark.dataSource.register(TFRecordSource)
        spark.dataSource.register(TFRecordsSource)


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
    if mode.lower() not in _MODES:
        raise ConfigError(f"Expected a mode, one of {_MODES}. Received: mode={mode!r}.", fix='mode="append"')
    is_new = mode.lower() in {"error", "errorifexists", "ignore"}
    if is_new and not _is_absent(df.sparkSession, path, is_error=mode.lower() != "ignore"):
        return
    writer = df.write.format("tfrecord").mode("overwrite" if mode.lower() == "overwrite" else "append")
    for key, value in (options or {}).items():
        writer = writer.option(key, str(value).lower() if isinstance(value, bool) else str(value))
    if partition_by:
        writer = writer.option("partitionColumns", json.dumps(list(partition_by)))
    if is_new:
        writer = writer.option("ifExists", "error")  # another program may have created it since the check
    try:
        writer.save(path)
    except Exception as error:
        if "[DATA_SOURCE_NOT_FOUND]" not in str(error):  # PySpark has no class for this error
            raise
        register(df.sparkSession)  # Spark looked for it with another Python
        writer.save(path)


def _is_absent(spark: "SparkSession", path: str, *, is_error: bool) -> bool:
    """Tell whether nothing is at a path, as an executor sees it; raise if a path that exists is an error."""
    import pyarrow as pa

    from emberflow._driver.interpreter import map_in_arrow
    from emberflow.tfrecord.input_files import qualified

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"found": [storage.exists(qualified(path))]})

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
