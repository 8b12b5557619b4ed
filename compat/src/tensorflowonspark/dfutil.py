"""DataFrames as TFRecord files and back, by Emberflow's TFRecord source: no jar is needed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import emberflow as ef
from emberflow.errors import DataError
from tensorflowonspark.cluster_facts import session_of

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

FLOATS = ("float", "double")
INTEGERS = ("boolean", "tinyint", "smallint", "int", "bigint", "long")
TEXTS = ("string", "binary")
LISTS = tuple(f"array<{kind}>" for kind in (*FLOATS, *INTEGERS))

loadedDF: "WeakKeyDictionary[DataFrame, str]" = WeakKeyDictionary()  # to the path that each was loaded from


def isLoadedDF(df: "DataFrame") -> bool:
    """Tell whether this very object was returned by `loadTFRecords`."""
    return df in loadedDF


def saveAsTFRecords(df: "DataFrame", output_dir: str) -> None:
    """Save a DataFrame as TFRecord files; the folder must not exist."""
    check_dtypes(df.dtypes)
    ef.tfrecord.write(df, output_dir)


def loadTFRecords(sc: "SparkContext", input_dir: str, binary_features: Sequence[str] = ()) -> "DataFrame":
    """Return the rows of TFRecord files: doubles, longs and texts, or arrays of these, columns sorted by name.

    Args:
        sc: The SparkContext.
        input_dir: The folder.
        binary_features: The features that are bytes and not text.
    """
    spark = session_of(sc)
    inferred = ef.tfrecord.read(spark, input_dir).schema
    df = ef.tfrecord.read(spark, input_dir, schema=_as_before(inferred, binary_features))
    loadedDF[df] = input_dir
    return df


def toTFExample(
    dtypes: Sequence[tuple[str, str]],
) -> Callable[[Iterable[Any]], Iterator[tuple[bytearray, None]]]:
    """Return a function for `mapPartitions` that makes serialized Examples of rows.

    Args:
        dtypes: `df.dtypes` of the rows.
    """
    check_dtypes(dtypes)

    def convert(rows: Iterable[Any]) -> Iterator[tuple[bytearray, None]]:
        import tensorflow as tf

        for row in rows:
            features = {name: _feature(row[name], kind) for name, kind in dtypes}
            example = tf.train.Example(features=tf.train.Features(feature=features))
            yield bytearray(example.SerializeToString()), None

    return convert


def fromTFExample(iter: Iterable[Any], binary_features: Sequence[str] = ()) -> Iterator[Any]:  # noqa: A002 - as it was
    """Yield a Row for each serialized Example, which is the first item of a record."""
    from pyspark.sql import Row

    import tensorflow as tf

    for record in iter:
        example = tf.train.Example.FromString(bytes(record[0]))
        features = sorted(example.features.feature.items())
        yield Row(**{name: _value(feature, name in binary_features) for name, feature in features})


def infer_schema(example: Any, binary_features: Sequence[str] = ()) -> "StructType":
    """Return the columns of one Example, sorted by name."""
    from pyspark.sql.types import StructField, StructType

    features = sorted(example.features.feature.items())
    return StructType(
        [StructField(name, _type_of(feature, name in binary_features)) for name, feature in features]
    )


def check_dtypes(dtypes: Sequence[tuple[str, str]]) -> None:
    """Refuse types that the old library did not save, before anything is written."""
    for name, kind in dtypes:
        if kind not in (*FLOATS, *INTEGERS, *TEXTS, *LISTS):
            raise DataError(
                f"Unsupported dtype: {kind}. Received: column {name!r}.",
                fix="Cast the column to a number, a text, bytes or an array of numbers; or use ef.tfrecord.write, "
                "which knows more types.",
            )


def _as_before(schema: "StructType", binary_features: Sequence[str]) -> "StructType":
    """Return the inferred columns with the types of the old library: doubles for floats, bytes where told."""
    from pyspark.sql.types import ArrayType, BinaryType, DoubleType, FloatType, StructField, StructType

    def kind_of(name: str, kind: "DataType") -> "DataType":
        if name in binary_features:
            return BinaryType()
        if isinstance(kind, ArrayType):
            return ArrayType(kind_of("", kind.elementType), kind.containsNull)
        return DoubleType() if isinstance(kind, FloatType) else kind

    return StructType([StructField(each.name, kind_of(each.name, each.dataType)) for each in schema])


def _feature(value: Any, kind: str) -> Any:
    import tensorflow as tf

    values = value if kind in LISTS else [value]
    element = kind.removeprefix("array<").removesuffix(">")
    if element in FLOATS:
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    if element in INTEGERS:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[int(each) for each in values]))
    data = bytes(value) if kind == "binary" else str(value).encode()
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[data]))


def _value(feature: Any, is_binary: bool) -> Any:
    values = list(feature.int64_list.value) or list(feature.float_list.value)
    if not values:
        values = [bytearray(each) if is_binary else each.decode() for each in feature.bytes_list.value]
    return values if len(values) > 1 else next(iter(values), None)


def _type_of(feature: Any, is_binary: bool) -> "DataType":
    from pyspark.sql.types import ArrayType, BinaryType, DoubleType, LongType, StringType

    if is_binary:
        return BinaryType()
    kinds: list[tuple[Any, DataType]] = [(feature.int64_list, LongType()), (feature.float_list, DoubleType())]
    values, kind = next(
        ((each.value, kind) for each, kind in kinds if each.value), (feature.bytes_list.value, StringType())
    )
    return ArrayType(kind) if len(values) > 1 else kind
