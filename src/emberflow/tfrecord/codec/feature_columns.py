"""A column of the codec: a name, an Arrow type, and the form of its values in a feature."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa

from emberflow.errors import ConfigError
from emberflow.tfrecord.codec.leaf_types import leaf_of

RecordType = Literal["Example", "SequenceExample", "ByteArray"]
Doubles = Literal["float", "bytes"]

CORRUPT = "_corrupt_record"
PACKED = {"float": "<f4", "int": "<i8"}
"""The form of numbers in a packed column, by the kind of the feature."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of the table.

    Attributes:
        name: The feature's key.
        type: The Arrow type of the column.
        depth: 0 for a scalar, 1 for an array, 2 for an array of arrays.
        leaf: The family of the values' type, a key of `LEAF_TYPES`.
        leaf_type: The Arrow type of one value.
        nullable: Whether a missing feature is allowed.
        is_vector: Whether this is Spark ML's vector, a struct that is written as one list of floats.
        packed: Whether the numbers of a list are read as one binary value.
    """

    name: str
    type: Any
    depth: int
    leaf: str
    leaf_type: Any
    nullable: bool = True
    is_vector: bool = False
    packed: bool = False


def column_of(field: Any) -> Column:
    """Return the column for an Arrow field; raise ConfigError for a type that no feature can hold."""
    if is_vector_type(field.type):
        return Column(
            name=field.name,
            type=field.type,
            depth=1,
            leaf="double",
            leaf_type=pa.float64(),
            nullable=field.nullable,
            is_vector=True,
        )
    kind, depth = field.type, 0
    while _is_list(kind):
        kind, depth = kind.value_type, depth + 1
    leaf = leaf_of(kind)
    if leaf is None or depth > 2:
        raise ConfigError(
            f"Expected a number, text, bytes, date or time, an array of these, an array of arrays, or a "
            f"Spark ML vector. Received: column {field.name!r} of type {field.type}.",
            fix="Leave the column out, or turn it into one of these types: a struct into its fields, a map "
            "into two arrays, anything else into a string with to_json().",
        )
    return Column(
        name=field.name, type=field.type, depth=depth, leaf=leaf, leaf_type=kind, nullable=field.nullable
    )


def columns_of(schema: Any, record_type: RecordType) -> list[Column]:
    """Return the columns for an Arrow schema, checked against the kind of record."""
    columns = [column_of(field) for field in schema]
    if record_type == "ByteArray":
        return _check_byte_array(columns)
    deep = [column.name for column in columns if column.depth == 2]
    if deep and record_type == "Example":
        raise ConfigError(
            f"An Example cannot hold arrays of arrays. Received: columns {deep} with recordType='Example'.",
            fix='Use .option("recordType", "SequenceExample"), or flatten() the columns.',
        )
    return columns


def pack(columns: list[Column], names: Sequence[str]) -> list[Column]:
    """Return the columns, those of the names as packed ones."""
    wrong = [
        f"{column.name} {column.type}" for column in columns if column.name in names and not _may_pack(column)
    ]
    if wrong:
        raise ConfigError(
            f"Packed numbers need binary columns. Received: option 'packed' for {', '.join(wrong)}.",
            fix="Make the columns `binary` in the schema, or leave them out of the option.",
        )
    return [replace(column, packed=True) if column.name in names else column for column in columns]


def _may_pack(column: Column) -> bool:
    return column.leaf == "binary" and not column.depth


def _check_byte_array(columns: list[Column]) -> list[Column]:
    if len(columns) != 1 or columns[0].depth or columns[0].leaf != "binary":
        found = ", ".join(f"{column.name} {column.type}" for column in columns)
        raise ConfigError(
            f"recordType='ByteArray' needs exactly one binary column. Received: {found or 'no column'}.",
            fix='Select one column of type binary, or use .option("recordType", "Example").',
        )
    return columns


def is_vector_type(kind: Any) -> bool:
    """Tell whether an Arrow type is the struct of Spark ML's vectors."""
    return (
        pa.types.is_struct(kind)
        and [field.name for field in kind] == ["type", "size", "indices", "values"]
        and pa.types.is_int8(kind.field("type").type)
    )


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
