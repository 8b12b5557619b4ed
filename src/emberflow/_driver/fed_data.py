"""What a live cluster is fed with: DataFrames or RDDs, and the Spark jobs that bring their rows to the nodes."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from emberflow._driver.interpreter import driver_python, made, map_in_arrow
from emberflow._driver.row_routing import ARROW_BATCHES, RunData, directed_rows, read_data
from emberflow._feed.python_rows import schema_of_rows
from emberflow._plan.stages import Stage
from emberflow._task.feeding_task import (
    ROUND_SCHEMA,
    STREAM_SCHEMA,
    RoundTask,
    StreamTask,
    feed_partition,
    feed_round,
)
from emberflow._task.rdd_task import RddRows, feed_partition_of_rows, feed_round_of_rows, split_rows
from emberflow.errors import ConfigError, DataError

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

SAMPLE_ROWS = 100  # of an RDD, whose types are those of all its rows; as many as Spark looks at


@dataclass(frozen=True, kw_only=True)
class FedFrames:
    """DataFrames by name."""

    spark: "SparkSession"
    data: RunData

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.data.frames)

    def feed_round(self, task: RoundTask) -> list[Any]:
        """Run the job of a round; return what its tasks report."""
        ranks = len(task.access.nodes)
        with ARROW_BATCHES.applied(self.spark):
            rows = directed_rows(self.data, Stage(first_rank=0, ranks=ranks, gpus=0), ranks)
            return map_in_arrow(rows, functools.partial(feed_round, task), ROUND_SCHEMA).collect()

    def feed_stream(self, task: StreamTask) -> list[Any]:
        """Run a job of a stream; return what its tasks report."""
        (frame,) = self.data.frames.values()
        with ARROW_BATCHES.applied(self.spark):
            return map_in_arrow(frame, functools.partial(feed_partition, task), STREAM_SCHEMA).collect()


@dataclass(frozen=True, kw_only=True)
class FedRdds:
    """RDDs by name, and the Arrow schemas of their rows."""

    spark: "SparkSession"
    rdds: "Mapping[str, RDD[Any]]"
    schemas: dict[str, bytes] = field(repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.rdds)

    def rows_of(self, name: str) -> RddRows:
        """Return what the tasks receive of an RDD; its first rows are looked at once."""
        for each, rdd in self.rdds.items():
            if each not in self.schemas:
                self.schemas[each] = _schema(each, rdd)
        return RddRows(name=name, schemas=tuple((each, self.schemas[each]) for each in self.names))

    def feed_round(self, task: RoundTask) -> list[Any]:
        """Run the job of a round; return what its tasks report."""
        ranks = len(task.access.nodes)
        rows = {name: self.rows_of(name) for name in self.names}
        with driver_python(self.spark):
            split = [
                rdd.mapPartitionsWithIndex(functools.partial(split_rows, rows[name], ranks))
                for name, rdd in self.rdds.items()
            ]
            together = split[0] if len(split) == 1 else self.spark.sparkContext.union(split)
            directed = together.partitionBy(ranks, int)
            feeding = functools.partial(feed_round_of_rows, task, rows[self.names[0]])
            fed = made(directed.mapPartitionsWithIndex(feeding))
        return list(fed.collect())

    def feed_stream(self, task: StreamTask) -> list[Any]:
        """Run a job of a stream; return what its tasks report."""
        (name,) = self.names
        rows = self.rows_of(name)
        with driver_python(self.spark):
            feeding = functools.partial(feed_partition_of_rows, task, rows)
            fed = made(self.rdds[name].mapPartitionsWithIndex(feeding))
        return list(fed.collect())


def is_rdd(data: Any) -> bool:
    """Tell whether this is an RDD; a DataFrame of Spark Connect has every attribute, as a column."""
    return hasattr(type(data), "mapPartitionsWithIndex")


def read_fed(
    spark: "SparkSession", data: Any, name: str, schemas: dict[str, bytes], schema: Any = None
) -> FedFrames | FedRdds:
    """Return what the user passed, checked.

    Args:
        spark: The session.
        data: A DataFrame, an RDD, or a dict of either by name.
        name: The name where there is none.
        schemas: Of the RDDs of earlier calls, by name.
        schema: Of this RDD, where the user knows it.
    """
    if schema is not None:
        schemas[name] = _checked_schema(schema, data)
    named = dict(data) if isinstance(data, Mapping) else {name: data}
    if named and all(map(is_rdd, named.values())):
        return FedRdds(spark=spark, rdds=named, schemas=schemas)
    frames = read_data({each: source for each, source in named.items() if not is_rdd(source)})
    if frames.files or len(frames.frames) != len(named) or not named:
        raise ConfigError(
            f"A live cluster is fed with DataFrames, or with RDDs. Received: {data!r}.",
            fix="Pass cluster.train(df), or a dict such as {'train': df, 'validation': other}; for files, "
            "spark.read.parquet(path).",
        )
    return FedFrames(spark=spark, data=frames)


def _checked_schema(schema: Any, data: Any) -> bytes:
    if not isinstance(schema, pa.Schema) or not is_rdd(data):
        raise ConfigError(
            "`schema` must be a pyarrow.Schema, and `data` one RDD. "
            f"Received: schema={schema!r}, data of type {type(data).__name__}.",
            fix="Pass schema=pa.schema([('value', pa.binary())]) with an RDD of bytes, or leave it out.",
        )
    return bytes(schema.serialize())


def _schema(name: str, rdd: "RDD[Any]") -> bytes:
    rows = rdd.take(SAMPLE_ROWS)
    if not rows:
        raise DataError(
            f"The data must have at least one row. Received: data[{name!r}] without rows.",
            fix="Check the RDD's filters and joins (rdd.count() should be above 0).",
        )
    return bytes(schema_of_rows(rows).serialize())
