"""TFRecord files as a Spark data source: no jar, classic Spark and Spark Connect.

Reading and writing work without a call from here, since Spark finds the data source by its name::

    spark.read.format("tfrecord").load("hdfs:///mnist/train")
    df.write.format("tfrecord").mode("overwrite").save("hdfs:///out")

Importing this package imports neither TensorFlow nor Spark; reading and writing import no TensorFlow either.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from emberflow.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["from_example", "register", "to_example", "write"]

_MODES = ("error", "errorifexists", "append", "overwrite", "ignore")


def register(spark: "SparkSession") -> None:
    """Register the data source under both its names in a session that does not find it by itself.

    Spark looks for installed data sources once, when the first one is used, with the Python of PYSPARK_PYTHON, or
    the `python3` of the PATH. Call this where emberflow came later, by ``spark.addArtifact`` for example, or where
    that Python has no emberflow and Spark says DATA_SOURCE_NOT_FOUND.
    """
    from emberflow._driver.interpreter import driver_python
    from emberflow.tfrecord.source import TFRecordSource, TFRecordsSource

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
    """Write a DataFrame as TFRecord, with the modes and folders that Spark refuses to ``df.write`` of such a source.

    Args:
        df: The rows.
        path: The folder.
        mode: What to do if the folder exists: "error" (the default), "append", "overwrite" or "ignore".
        partition_by: Columns whose values become folders ``key=value``; they are not stored in the records.
        options: The data source's options, such as ``{"compression": "gzip", "recordType": "SequenceExample"}``.
    """
    import json

    from emberflow.tfrecord.functions import check_absent

    if mode.lower() not in _MODES:
        raise ConfigError(f"Expected a mode, one of {_MODES}. Received: mode={mode!r}.", fix='mode="append"')
    is_new = mode.lower() in {"error", "errorifexists", "ignore"}
    if is_new and not check_absent(df.sparkSession, path, is_error=mode.lower() != "ignore"):
        return
    writer = df.write.format("tfrecord").mode("overwrite" if mode.lower() == "overwrite" else "append")
    for key, value in (options or {}).items():
        writer = writer.option(key, str(value).lower() if isinstance(value, bool) else str(value))
    if partition_by:
        writer = writer.option("partitionColumns", json.dumps(list(partition_by)))
    if is_new:
        writer = writer.option("ifExists", "error")  # it may have come into being since we looked
    try:
        writer.save(path)
    except Exception as error:
        if "[DATA_SOURCE_NOT_FOUND]" not in str(error):  # PySpark knows no class for it
            raise
        register(df.sparkSession)  # Spark has looked for it with another Python
        writer.save(path)


def to_example(
    struct: "Column | str",
    *,
    record_type: Literal["Example", "SequenceExample"] = "Example",
    doubles: Literal["float", "bytes"] = "float",
) -> "Column":
    """Return serialized Examples (or SequenceExamples) of a struct column, one feature per field.

    Args:
        struct: The struct, as ``struct("image", "label")``.
        record_type: What to make of each row.
        doubles: Whether doubles become 32 bit floats, or bytes that keep all 64 bits.
    """
    from emberflow.tfrecord.functions import example_column

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
        schema: The struct to make, as a StructType or as ``"image array<float>, label long"``.
        record_type: What the bytes are.
    """
    from emberflow.tfrecord.functions import struct_column

    return struct_column(data, schema, record_type)
