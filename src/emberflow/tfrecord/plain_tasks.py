"""TFRecord files by plain tasks of Spark, where it has no data sources in Python: Spark 3.5.

The driver and the tasks call our data source as a newer Spark would, so files, options and guarantees are the same.
"""

import functools
import pickle
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from emberflow._driver.interpreter import map_in_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from emberflow.tfrecord.data_source_api import DataSourceReader, DataSourceWriter, InputPartition
    from emberflow.tfrecord.spark_source import TFRecordSource

WRITTEN = "commit binary"


def read_by_tasks(
    spark: "SparkSession", source: "TFRecordSource", schema: "StructType | None"
) -> "DataFrame":
    """Return the rows of the files that are there now, lazily."""
    schema = schema or source.schema()
    reader = source.reader(schema)
    partitions = reader.partitions()
    if not partitions:
        return spark.createDataFrame([], schema)
    read = functools.partial(_read_task, reader, partitions)
    return map_in_arrow(spark.range(0, len(partitions), 1, len(partitions)), read, schema)


def write_by_tasks(df: "DataFrame", source: "TFRecordSource", *, overwrite: bool) -> None:
    """Write the rows; they appear together when all of them are there."""
    writer = source.writer(df.schema, overwrite)
    try:
        rows = map_in_arrow(df, functools.partial(_write_task, writer), WRITTEN).collect()
        writer.commit([pickle.loads(row["commit"]) for row in rows])
    except BaseException:
        writer.abort([])
        raise


def _read_task(
    reader: "DataSourceReader", partitions: "Sequence[InputPartition]", batches: Iterator[Any]
) -> Iterator[Any]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from reader.read(partitions[number])


def _write_task(writer: "DataSourceWriter", batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    commit = writer.write(batches)
    yield pa.RecordBatch.from_pydict({"commit": [pickle.dumps(commit)]})
