"""From an Arrow column to the values of features: int64, float32 or bytes, flat, with a count per row."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from emberflow.errors import DataError
from emberflow.tfrecord.codec.feature_columns import Column, Doubles
from emberflow.tfrecord.codec.leaf_types import LEAF_TYPES
from emberflow.tfrecord.codec.protobuf import Array

Kind = Literal["bytes", "float", "int"]


@dataclass(frozen=True, kw_only=True)
class Values:
    """The values of one column: flat, and how many each row has.

    Attributes:
        kind: The feature's kind.
        data: int64 or float32 numbers, or for bytes all values concatenated.
        lengths: For bytes, the length of each value; else None.
        counts: For each row that is not null, how many values it has.
        rows: The rows that are not null, or None for all.
        steps: For an array of arrays, how many inner arrays each row has (`counts` is then per inner array).
    """

    kind: Kind
    data: Array
    lengths: Array | None = None
    counts: Array
    rows: Array | None = None
    steps: Array | None = None


def values_of(array: Any, column: Column, doubles: Doubles) -> Values:
    """Return the values of the features of one column."""
    rows = None
    if array.null_count:
        rows = np.flatnonzero(np.asarray(array.is_valid()))
        array = array.drop_null()
    if column.is_vector:
        array = dense_vectors(array)
    steps = None
    counts = np.ones(len(array), np.int64)
    for level in range(column.depth):
        steps = counts if level else None
        counts = _list_lengths(array)
        array = array.flatten()
        _refuse_nulls(array, column)
    if column.depth and column.leaf == "double" and doubles == "bytes":
        return _blobs(array, counts, rows, steps)
    kind, data, lengths = _leaf(array, column, doubles)
    return Values(kind=kind, data=data, lengths=lengths, counts=counts, rows=rows, steps=steps)


def _list_lengths(array: Any) -> Array:
    if pa.types.is_fixed_size_list(array.type):
        return np.full(len(array), array.type.list_size, np.int64)
    return np.diff(np.asarray(array.offsets).astype(np.int64))


def _refuse_nulls(array: Any, column: Column) -> None:
    if array.null_count:
        raise DataError(
            f"A feature cannot hold a null inside an array. Received: a null in column {column.name!r}.",
            fix=f'Drop or fill them first: filter("{column.name}", lambda x: x.isNotNull()).',
        )


def _blobs(array: Any, counts: Array, rows: Array | None, steps: Array | None) -> Values:
    """Return each array of doubles as one value, eight bytes per number, as tf.io.decode_raw reads it."""
    data = np.ascontiguousarray(array.to_numpy(zero_copy_only=False).astype("<f8", copy=False))
    used = counts > 0
    return Values(
        kind="bytes",
        data=data.view(np.uint8),
        lengths=8 * counts[used],
        counts=used.astype(np.int64),
        rows=rows,
        steps=steps,
    )


def _leaf(array: Any, column: Column, doubles: Doubles) -> tuple[Kind, Array, Array | None]:
    leaf = column.leaf
    if leaf in {"string", "binary"}:
        return "bytes", *_bytes(array)
    if leaf in {"double", "decimal"} and doubles == "bytes":
        if leaf == "decimal":
            return "bytes", *_bytes(array.cast(pa.string()))
        data = np.ascontiguousarray(array.to_numpy(zero_copy_only=False).astype("<f8", copy=False))
        return "bytes", data.view(np.uint8), np.full(len(data), 8, np.int64)
    if leaf in {"float", "double", "decimal"}:
        if leaf == "decimal":
            array = array.cast(pa.float64())
        # A double beyond float32 becomes an infinity: the user chose the narrowing.
        with np.errstate(over="ignore"):
            return "float", array.to_numpy(zero_copy_only=False).astype("<f4", copy=False), None
    return "int", _integers(array, leaf), None


def _integers(array: Any, leaf: str) -> Array:
    convert = LEAF_TYPES[leaf].to_integers
    if convert is not None:
        array = convert(array)
    return array.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)


def _bytes(array: Any) -> tuple[Array, Array]:
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offsets, data = array.buffers()
    if not len(array):
        return np.empty(0, np.uint8), np.empty(0, np.int64)
    limits = np.frombuffer(offsets, np.int64 if large else np.int32)
    limits = limits[array.offset : array.offset + len(array) + 1].astype(np.int64)
    content = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return content[limits[0] : limits[-1]], np.diff(limits)


def dense_vectors(array: Any) -> Any:
    """Return Spark ML's vectors as arrays of doubles, sparse ones with their zeros."""
    sparse = np.asarray(array.field("type")) == 0
    values = array.field("values")
    if not sparse.any():
        return values
    used = _list_lengths(values)
    sizes = np.where(sparse, np.asarray(array.field("size").fill_null(0)), used).astype(np.int64)
    starts = np.cumsum(sizes) - sizes
    indices = np.asarray(_flat_indices(array, used, sparse))
    data = np.zeros(int(sizes.sum()), np.float64)
    data[np.repeat(starts, used) + indices] = values.flatten().to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(data))


def _flat_indices(array: Any, used: Array, sparse: Array) -> Array:
    """Return for each stored value its place in its vector: counted in dense ones, given in sparse ones."""
    before = np.cumsum(used) - used
    places = np.arange(int(used.sum())) - np.repeat(before, used)
    places[np.repeat(sparse, used)] = np.asarray(array.field("indices").filter(pa.array(sparse)).flatten())
    return places
