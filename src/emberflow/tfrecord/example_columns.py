"""Columns of serialized Examples from structs, and back, as Arrow UDFs."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from emberflow._driver.interpreter import driver_python
from emberflow._driver.spark_versions import ARROW_UDFS, check_offers, parse_schema
from emberflow.tfrecord.codec.decode import decode
from emberflow.tfrecord.codec.encode import encode
from emberflow.tfrecord.codec.feature_columns import Column, Doubles, RecordType, columns_of
from emberflow.tfrecord.codec.protobuf import PAD, copy_ragged
from emberflow.tfrecord.codec.record_frames import Chunk

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql.types import StructType


def example_column(struct: "SparkColumn | str", record_type: RecordType, doubles: Doubles) -> "SparkColumn":
    """Return the serialized records of a struct column."""

    def serialize(rows: pa.Array) -> pa.Array:
        return serialized(rows, record_type, doubles)

    return _udf(serialize, "binary", struct)


def struct_column(
    data: "SparkColumn | str", schema: "StructType | str", record_type: RecordType
) -> "SparkColumn":
    """Return the struct column of serialized records."""
    from emberflow.tfrecord.spark_types import arrow_schema

    kind: Any = parse_schema(schema) if isinstance(schema, str) else schema
    columns = columns_of(arrow_schema(kind), record_type)

    def parse(payloads: pa.Array) -> pa.Array:
        return parsed(payloads, columns, record_type)

    return _udf(parse, kind, data)


def _udf(fn: Any, kind: Any, column: "SparkColumn | str") -> "SparkColumn":
    from pyspark.sql import SparkSession, functions

    spark = SparkSession.getActiveSession()
    if spark is not None:
        check_offers(
            spark,
            ARROW_UDFS,
            fix="Write the rows with ef.tfrecord.write, and read them with ef.tfrecord.read.",
        )
    with driver_python(spark):
        wrapped: SparkColumn = functions.arrow_udf(fn, kind)(column)  # type: ignore[attr-defined] # not in its stubs
    return wrapped


def serialized(rows: Any, record_type: RecordType, doubles: Doubles) -> Any:
    """Return an Arrow array of serialized records from a struct array; a null stays a null."""
    batch = pa.RecordBatch.from_struct_array(rows.drop_null())
    encoded = encode(batch, columns_of(batch.schema, record_type), record_type, doubles)
    data = copy_ragged(encoded.data, encoded.starts, encoded.lengths)
    offsets = np.concatenate([[0], np.cumsum(encoded.lengths)]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return _with_nulls(pa.Array.from_buffers(pa.binary(), batch.num_rows, buffers), rows)


def parsed(payloads: Any, columns: list[Column], record_type: RecordType) -> Any:
    """Return a struct array from an Arrow array of serialized records; a null stays a null."""
    given = payloads.drop_null().cast(pa.binary())
    offsets = np.frombuffer(given.buffers()[1], np.int32)[given.offset : given.offset + len(given) + 1]
    limits = offsets.astype(np.int64) if len(given) else np.zeros(1, np.int64)
    content = given.buffers()[2]
    data = np.zeros(int(limits[-1]) + PAD, np.uint8)
    if content is not None:
        data[: limits[-1]] = np.frombuffer(content, np.uint8)[: limits[-1]]
    decoded = decode(Chunk(data=data, starts=limits[:-1], ends=limits[1:]), columns, record_type)
    if decoded.refused:
        raise decoded.refused[min(decoded.refused)]
    fields = [pa.field(column.name, column.type, column.nullable) for column in columns]
    return _with_nulls(pa.StructArray.from_arrays(decoded.arrays, fields=fields), payloads)


def _with_nulls(values: Any, given: Any) -> Any:
    """Put nulls where the given array has them."""
    if not given.null_count:
        return values
    is_there = np.asarray(given.is_valid())
    return values.take(pa.array(np.where(is_there, np.cumsum(is_there) - 1, 0), mask=~is_there))
