"""Spark schemas to Arrow schemas, and back."""

import re
from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from emberflow.tfrecord.input_files import InputFile
from emberflow.tfrecord.options import Options

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


def arrow_schema(schema: "StructType") -> Any:
    """Return the Arrow schema that Spark expects for a DataFrame."""
    import inspect

    from pyspark.sql.pandas.types import to_arrow_schema

    has_zone = (
        "timezone" in inspect.signature(to_arrow_schema).parameters
    )  # since 4.2; UTC was the default before
    return to_arrow_schema(schema, timezone="UTC") if has_zone else to_arrow_schema(schema)


def spark_schema(schema: Any, files: Sequence[InputFile], options: Options) -> "StructType":
    """Return Spark's schema: the columns of the records, those of folder names, and that of broken records."""
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import BinaryType, StructType

    keys = key_types(files)
    fields = [field for field in from_arrow_schema(schema) if field.name not in keys]
    out = StructType(fields)
    for name, kind in keys.items():
        out.add(name, kind)
    if options.columns:
        out = StructType([out[name] for name in options.columns if name in out.fieldNames()])
    if options.is_permissive and options.corrupt_column not in out.fieldNames():
        out.add(options.corrupt_column, BinaryType())
    return out


def key_types(files: Sequence[InputFile]) -> "dict[str, DataType]":
    """Return the columns of ``key=value`` folders with a type that holds all their values."""
    values: dict[str, set[str]] = {}
    for file in files:
        for key, value in file.keys.items():
            values.setdefault(key, set()).update([value] if value is not None else [])
    return {key: _key_type(seen) for key, seen in values.items()}


def _key_type(values: set[str]) -> "DataType":
    from pyspark.sql.types import DateType, DoubleType, IntegerType, LongType, StringType

    if values and all(re.fullmatch(r"-?(0|[1-9]\d{0,17})", value) for value in values):
        is_small = all(-(1 << 31) <= int(value) < 1 << 31 for value in values)
        return IntegerType() if is_small else LongType()
    if values and all(re.fullmatch(r"-?\d+\.\d+", value) for value in values):
        return DoubleType()
    if values and all(_is_date(value) for value in values):
        return DateType()
    return StringType()


def _is_date(value: str) -> bool:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", value):
        return False
    try:
        date.fromisoformat(value)
    except ValueError:
        return False
    return True
