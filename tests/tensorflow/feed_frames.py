"""DataFrames for tests of the feed on clusters: the same rows cut in every way, and one with every type."""

import datetime as dt
import decimal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 97

# Name to the ids that are expected; those in LOOSE come out of a shuffle of the DataFrame's own.
LOOSE = ("hashed", "distinct", "sorted")


def partitionings(spark: "SparkSession") -> "dict[str, tuple[DataFrame, Sequence[int]]]":
    """Return DataFrames of one column, `id`, and the ids in each."""
    from pyspark.sql import functions as F

    whole = range(ROWS)

    def cut(rows: int, parts: int, where: str = "true") -> "DataFrame":
        return spark.range(0, rows, 1, parts).where(where)

    return {
        "even": (cut(ROWS, 4), whole),
        "one_partition": (cut(ROWS, 1), whole),
        "all_in_one_of_eight": (cut(ROWS, 1).repartition(8, F.lit(1)), whole),
        "skewed": (cut(80, 1).union(cut(ROWS, 16, "id >= 80")), whole),
        "first_ones_empty": (cut(ROWS, 8, "id >= 60"), range(60, ROWS)),
        "last_ones_empty": (cut(ROWS, 8, "id < 20"), range(20)),
        "all_to_rank_0": (cut(64, 64, "id % 2 = 0"), range(0, 64, 2)),
        "one_row": (cut(100, 16, "id = 57"), [57]),
        "a_row_each": (cut(2, 1), [0, 1]),
        "more_partitions_than_rows": (cut(5, 16), range(5)),
        "hashed": (cut(ROWS, 3).repartition(7, "id"), whole),
        "union": (cut(50, 3).union(cut(ROWS, 2, "id >= 50")), whole),
        "distinct": (cut(3 * ROWS, 4).select((F.col("id") % ROWS).alias("id")).distinct(), whole),
        "sorted": (cut(ROWS, 3).orderBy(F.desc("id")), whole),
    }


TYPES = (
    "id long, byte byte, short short, int int, float float, double double, boolean boolean, string string, "
    "decimal decimal(10,2), date date, timestamp timestamp, raw binary, pixels binary, fixed array<float>, "
    "ragged array<int>, nested array<array<int>>, words array<string>, "
    "struct struct<a:int,inner:struct<b:string>>, holes double, gaps array<int>"
)


def typed_row(number: int) -> dict[str, Any]:
    """Return row `number`; every fifth has nulls where nulls may be."""
    is_null = number % 5 == 0
    return {
        "id": number,
        "byte": number % 100 - 50,
        "short": -number,
        "int": number * 1000,
        "float": number / 4,
        "double": number / 8,
        "boolean": number % 2 == 0,
        "string": f"é{number}",
        "decimal": decimal.Decimal(number) / 4,
        "date": dt.date(1970, 1, 1) + dt.timedelta(days=number),
        "timestamp": dt.datetime.fromtimestamp(number, dt.UTC),
        "raw": bytes(number % 7),
        "pixels": bytes([number % 256, 1, 2, 3]),
        "fixed": [number / 2, 0.5, 1.0],
        "ragged": list(range(number % 4)),
        "nested": [[number, 1]] * (number % 3),
        "words": ["a", str(number)][: number % 3],
        "struct": {"a": number, "inner": {"b": f"b{number}"}},
        "holes": None if is_null else number / 2,
        "gaps": None if is_null else [number, number],
    }


def typed_tensors(number: int) -> dict[str, Any]:
    """Return what row `number` must be as tensors, given as plain Python values."""
    row = typed_row(number)
    is_null = number % 5 == 0
    return row | {
        "string": row["string"].encode(),
        "decimal": number / 4,
        "date": number,
        "timestamp": number * 1_000_000,
        "pixels": [[number % 256, 1], [2, 3]],
        "words": [word.encode() for word in row["words"]],
        "struct.a": number,
        "struct.inner.b": f"b{number}".encode(),
        "holes": -1.0 if is_null else number / 2,
        "gaps": [7, 7] if is_null else [number, number],
        "dense": [number, 0.5],
        "sparse": [0.0, number, 0.0] if number % 2 else [0.0, 0.0, number],
    }


def typed_frame(spark: "SparkSession", rows: int) -> "DataFrame":
    """Return rows of every type, in five partitions."""
    from pyspark.ml.linalg import Vectors, VectorUDT
    from pyspark.sql.types import StructField, StructType, _parse_datatype_string  # type: ignore[attr-defined]

    plain = _parse_datatype_string(TYPES)
    vectors = [StructField("dense", VectorUDT()), StructField("sparse", VectorUDT())]
    values = [
        (
            *typed_row(number).values(),
            Vectors.dense(number, 0.5),
            Vectors.sparse(3, {1: float(number)}) if number % 2 else Vectors.dense(0.0, 0.0, number),
        )
        for number in range(rows)
    ]
    return spark.createDataFrame(values, StructType([*plain.fields, *vectors])).repartition(5)
