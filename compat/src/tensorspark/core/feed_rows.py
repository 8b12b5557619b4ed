"""The rows of an RDD as columns of bytes, one for each placeholder of a graph."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import emberflow as ef

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

STRING = "string"


@dataclass(frozen=True, kw_only=True)
class Feed:
    """A placeholder, and the column that feeds it.

    Attributes:
        name: The placeholder's name, such as "x:0".
        column: The column of the DataFrame; columns sort in the order of the feeds.
        dtype: Numpy's name of its dtype, or "string".
        shape: The shape of one row.
    """

    name: str
    column: str
    dtype: str
    shape: tuple[int, ...]


def feeds_of(graph: Any, feed_names: Sequence[Any], rdd: "RDD[Any]") -> tuple[Feed, ...]:
    """Return what each placeholder takes, by the graph; shapes that it leaves open, by the first row."""
    first: Any = None
    feeds = []
    for place, given in enumerate(feed_names):
        tensor = graph.get_tensor_by_name(given if isinstance(given, str) else given.name)
        dtype = STRING if tensor.dtype.name == STRING else np.dtype(tensor.dtype.as_numpy_dtype).name
        shape: tuple[int, ...] = ()
        if dtype != STRING and tensor.shape.rank and tensor.shape[1:].is_fully_defined():
            shape = tuple(tensor.shape.as_list()[1:])
        elif dtype != STRING:
            first = first or next(iter(rdd.take(1)), None)
            shape = () if first is None else np.shape(first[place])
        feeds.append(Feed(name=tensor.name, column=f"feed_{place:04}", dtype=dtype, shape=shape))
    return tuple(feeds)


def rows_of(spark: "SparkSession", rdd: "RDD[Any]", feeds: Sequence[Feed]) -> "DataFrame":
    """Return the RDD as a DataFrame with a binary column for each placeholder."""
    from pyspark.sql.types import BinaryType, StructField, StructType

    schema = StructType([StructField(feed.column, BinaryType(), nullable=False) for feed in feeds])
    return spark.createDataFrame(
        rdd.map(functools.partial(encoded, tuple(feeds))), schema, verifySchema=False
    )


def encoded(feeds: Sequence[Feed], row: Sequence[Any]) -> tuple[bytearray, ...]:
    """Return a row's values as bytes."""
    if len(row) != len(feeds):
        raise ef.DataError(
            f"Each row of feed_rdd must have one element for each name of feed_name_list. "
            f"Received: {len(row)} elements, feed_name_list={[feed.name for feed in feeds]}.",
            fix="Map the RDD to tuples of that length: rdd.map(lambda row: (row.image, row.label)).",
        )
    return tuple(_bytes_of(feed, value) for feed, value in zip(feeds, row, strict=True))


def _bytes_of(feed: Feed, value: Any) -> bytearray:
    if feed.dtype == STRING:
        return bytearray(value.encode() if isinstance(value, str) else bytes(value))
    array = np.asarray(value, feed.dtype)
    if array.shape != feed.shape:
        raise ef.DataError(
            f"Each row must fit the placeholder {feed.name}, which takes shape {feed.shape}. "
            f"Received: a row of shape {array.shape}.",
            fix="Give all rows of feed_rdd this shape.",
        )
    return bytearray(array.tobytes())
