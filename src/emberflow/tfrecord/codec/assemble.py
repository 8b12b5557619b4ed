"""From the values of features to Arrow arrays of the schema's types."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from emberflow.tfrecord.codec.feature_columns import PACKED, Column
from emberflow.tfrecord.codec.leaf_types import LEAF_TYPES
from emberflow.tfrecord.codec.lists import LeafValues
from emberflow.tfrecord.codec.protobuf import Array

_MOST = (1 << 31) - 1
"""Largest number of bytes in a binary column of one batch: offsets are 32 bit."""


class IrregularRecords(Exception):  # noqa: N818 - not an error: the caller reads these records in another way
    """The plain parser must read some records."""

    def __init__(self, rows: Array) -> None:
        super().__init__(rows)
        self.rows = rows


def column_array(column: Column, leaves: LeafValues, wrong: Array) -> tuple[Any, Array]:
    """Return a column of scalars, arrays or vectors."""
    wrong = wrong | leaves.irregular
    missing = leaves.counts < 0
    counts = np.maximum(leaves.counts, 0)
    is_packed = column.packed and leaves.kind in PACKED
    if is_packed:
        wrong = wrong | (missing & (not column.nullable))
    elif not column.depth:
        wrong = wrong | (counts > 1)
    if not column.nullable and not is_packed:
        wrong = wrong | (missing if column.depth else counts == 0)
    if wrong.any():
        raise IrregularRecords(wrong)
    if is_packed:
        return _packed(column, leaves, counts, missing), wrong
    values, counts = _leaf_array(column, leaves, counts)
    if not column.depth:
        return _with_gaps(values, counts == 1), wrong
    if column.is_vector:
        return _vectors(column, values, counts, missing), wrong
    return _lists(values, counts, column.type, missing), wrong


def _packed(column: Column, leaves: LeafValues, counts: Array, missing: Array) -> Any:
    """Return the numbers of each list as one binary value."""
    data = np.ascontiguousarray(leaves.data, PACKED[str(leaves.kind)])
    offsets = np.concatenate([[0], np.cumsum(counts)]) * data.itemsize
    if offsets[-1] > _MOST:
        raise IrregularRecords(np.ones(len(counts), bool))
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    array = pa.Array.from_buffers(pa.binary(), len(counts), buffers).cast(column.type)
    return pc.if_else(pa.array(missing), pa.scalar(None, column.type), array) if missing.any() else array


def nested_array(column: Column, leaves: LeafValues, steps: Array) -> Any:
    """Return a column of arrays of arrays; `steps` is -1 where the list is missing."""
    missing = steps < 0
    if not column.nullable and missing.any():
        raise IrregularRecords(missing)
    values, counts = _leaf_array(column, leaves, np.maximum(leaves.counts, 0), np.maximum(steps, 0))
    inner = _lists(values, counts, column.type.value_type, None)
    return _lists(inner, np.maximum(steps, 0), column.type, missing)


def _leaf_array(
    column: Column, leaves: LeafValues, counts: Array, steps: Array | None = None
) -> tuple[Any, Array]:
    """Return all values as an Arrow array, and how many each feature has."""

    def refuse(features: Array) -> IrregularRecords:
        if steps is None:
            return IrregularRecords(features)
        rows = np.zeros(len(steps), bool)
        rows[np.repeat(np.arange(len(steps)), steps)[features]] = True
        return IrregularRecords(rows)

    if leaves.kind is None:
        return pa.array([], column.leaf_type), counts
    if leaves.kind not in LEAF_TYPES[column.leaf].fast_kinds:
        raise refuse(leaves.counts >= 0)
    if leaves.kind == "bytes":
        if column.leaf == "double":
            return _doubles(column, leaves, counts, refuse)
        return _bytes(column, leaves, counts, refuse), counts
    data = leaves.data
    bad = _lost(data, leaves.kind, column)
    if bad is not None and bad.any():
        raise refuse(_owners(counts, bad))
    return _numbers(data, column), counts


def _lost(data: Array, kind: str, column: Column) -> Array | None:
    """Return which numbers the type cannot hold."""
    if kind == "float":
        return None
    if column.leaf in {"float", "double"}:
        limit = 1 << (24 if column.leaf == "float" else 53)
        return (data < -limit) | (data > limit)  # above that the plain parser decides
    if column.leaf == "bool" or column.leaf_type.bit_width == 64:
        return None
    limit = 1 << (column.leaf_type.bit_width - 1)
    return (data < -limit) | (data >= limit)


def _numbers(data: Array, column: Column) -> Any:
    convert = LEAF_TYPES[column.leaf].from_integers
    if convert is not None:
        return convert(data, column.leaf_type)
    return pa.array(data.astype(column.leaf_type.to_pandas_dtype(), copy=False))


def _bytes(column: Column, leaves: LeafValues, counts: Array, refuse: Any) -> Any:
    lengths = leaves.lengths
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(leaves.data))]
    array = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
    try:
        return array.cast(column.leaf_type)
    except pa.ArrowInvalid:
        bad = np.array([not is_text(value) for value in array.to_pylist()])
        raise refuse(_owners(counts, bad)) from None


def is_text(value: bytes) -> bool:
    """Tell whether bytes are valid UTF-8."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _doubles(column: Column, leaves: LeafValues, counts: Array, refuse: Any) -> tuple[Any, Array]:
    """Read numbers of eight bytes each, one number per value or all in one value."""
    lengths = leaves.lengths
    bad = (lengths != 8) if not column.depth else lengths % 8 != 0
    if bad.any():
        raise refuse(_owners(counts, bad))
    before = np.concatenate([[0], np.cumsum(lengths)])
    ends = np.cumsum(counts)
    return pa.array(leaves.data.view("<f8")), (before[ends] - before[ends - counts]) // 8


def _owners(counts: Array, bad: Array) -> Array:
    """Return which features have a bad value."""
    owners = np.zeros(len(counts), bool)
    owners[np.repeat(np.arange(len(counts)), counts)[bad]] = True
    return owners


def _with_gaps(values: Any, is_there: Array) -> Any:
    """Return scalars with nulls where there is no value."""
    if is_there.all():
        return values
    places = np.where(is_there, np.cumsum(is_there) - 1, 0)
    return values.take(pa.array(places, mask=~is_there))


def _lists(values: Any, counts: Array, kind: Any, missing: Array | None) -> Any:
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    mask = pa.array(missing) if missing is not None and missing.any() else None
    return pa.ListArray.from_arrays(offsets, values, type=kind, mask=mask)


def _vectors(column: Column, values: Any, counts: Array, missing: Array) -> Any:
    rows = len(counts)
    children = [
        pa.array(np.ones(rows, np.int8)),
        pa.nulls(rows, column.type.field("size").type),
        pa.nulls(rows, column.type.field("indices").type),
        _lists(values, counts, column.type.field("values").type, None),
    ]
    mask = pa.array(missing) if missing.any() else None
    return pa.StructArray.from_arrays(children, fields=list(column.type), mask=mask)
