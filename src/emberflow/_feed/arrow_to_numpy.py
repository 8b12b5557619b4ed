"""Arrow arrays to numpy arrays, whole columns at a time and without a copy where Arrow allows it.

A dense column becomes one array; a ragged one its flat values and the row splits of each ragged level.
"""

import math
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from emberflow._feed.arrays import (
    is_bytes,
    is_list,
    is_text,
    is_vector,
    list_levels,
    normalized,
    offsets_of,
    valid_rows,
    word_view,
)
from emberflow._feed.element_types import BYTES, as_numbers, is_fixed_width
from emberflow._feed.shard_facts import ColumnFacts
from emberflow._feed.tensor_columns import Column
from emberflow.errors import DataError

FlatArrays = list[NDArray[Any]]


def flat_arrays_of(column: Column, array: Any) -> FlatArrays:
    """Return a column's rows as numpy arrays: the values, then the splits of each ragged level."""
    array = normalized(array)
    if is_vector(array.type):
        if not column.ragged:
            return [_vectors(column, array)]
        array = array.field("values")
    splits = []
    for _ in range(column.ragged):
        sizes, array = _opened(column, array)
        splits.append(np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)]))
    if column.decode and column.ragged:
        return [array.reshape(-1, *column.shape), *splits]
    values = _dense(column, array, column.lengths)
    return [values.reshape(-1, *column.shape) if math.prod(column.shape) else values, *splits]


def view_of(column: Column, array: Any) -> NDArray[Any]:
    """Return all rows of a chunk as one numpy array over Arrow's own memory; see `can_view`."""
    if column.decode:
        return _decoded(column, array).reshape(len(array), *column.shape)
    if is_vector(array.type):
        array = array.field("values")
    rows = len(array)
    while is_list(array.type):
        array = array.flatten()
    return word_view(array).reshape(rows, *column.shape)


def can_view(column: Column, facts: ColumnFacts) -> bool:
    """Tell whether `view_of` works for every chunk of a shard with these facts."""
    kind = column.leaf.type
    if column.ragged or facts.nulls or facts.inner_nulls or facts.sparse:
        return False
    if column.decode:
        return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
    return is_vector(kind) or is_fixed_width(list_levels(kind)[1])


def _opened(column: Column, array: Any) -> tuple[NDArray[np.int64], Any]:
    """Return the lengths of an array's rows, and the concatenated content of the rows."""
    sizes = np.diff(offsets_of(array)).astype(np.int64)
    valid = valid_rows(array)
    if column.decode:
        width = np.dtype(column.dtype).itemsize * max(1, math.prod(column.shape))
        array = array if valid is None else array.fill_null(b"")
        sizes = np.diff(offsets_of(array)).astype(np.int64)
        if (sizes % width).any():  # the facts hold the shortest and the longest row only
            raise DataError(
                f"Column {column.name!r} must hold a multiple of {width} bytes in each row. "
                f"Received: {int(sizes[sizes % width != 0][0])} bytes in one.",
                fix="Correct dtypes= or shapes=.",
            )
        return sizes // width, _decoded(column, array)
    if valid is not None:
        sizes[~valid] = 0  # with a declared null_value, a null row is an empty row
    return sizes, normalized(array.flatten())


def _dense(column: Column, array: Any, lengths: tuple[int, ...]) -> NDArray[Any]:
    """Return an array whose lists all have these lengths, with one dimension for each."""
    shape = (len(array), *lengths)
    if not column.decode and not is_list(array.type):
        return _scalars(column, array)
    valid = valid_rows(array)
    if valid is not None:
        rows = np.full(shape, column.fill, object if column.dtype == BYTES else column.dtype)
        rows[valid] = _dense(column, array.drop_null(), lengths)
        return rows
    if column.decode:
        return _decoded(column, array).reshape(shape)
    return _dense(column, normalized(array.flatten()), lengths[1:]).reshape(shape)


def _decoded(column: Column, array: Any) -> NDArray[Any]:
    """Return the numbers of all binary values, concatenated."""
    offsets = offsets_of(array)
    start, stop = int(offsets[0]), int(offsets[-1])
    buffer = array.buffers()[2]
    if buffer is None or stop == start:
        return np.zeros(0, column.dtype)
    dtype = np.dtype(column.dtype)
    return np.frombuffer(buffer, dtype, (stop - start) // dtype.itemsize, start)


def _scalars(column: Column, array: Any) -> NDArray[Any]:
    """Return the values of an array without lists."""
    if column.dtype == BYTES:
        return _strings(array, column.fill)
    array = as_numbers(array)
    if array.null_count:
        array = array.fill_null(pa.scalar(column.fill).cast(array.type))
    if pa.types.is_boolean(array.type):
        return np.asarray(array.to_numpy(zero_copy_only=False)).astype(column.dtype, copy=False)
    return word_view(array).astype(column.dtype, copy=False)


def _strings(array: Any, fill: Any) -> NDArray[Any]:
    if is_text(array.type):
        array = array.cast(pa.large_binary() if pa.types.is_large_string(array.type) else pa.binary())
    if array.null_count and is_bytes(array.type):
        array = array.fill_null(pa.scalar(fill, array.type))
    return np.asarray(array.to_numpy(zero_copy_only=False), object)


def _vectors(column: Column, array: Any) -> NDArray[Any]:
    """Return Spark ML vectors, dense and sparse ones mixed, as a dense matrix."""
    valid = valid_rows(array)
    if valid is not None:
        rows = np.full((len(array), *column.lengths), column.fill, column.dtype)
        rows[valid] = _vectors(column, array.drop_null()).reshape(-1, *column.lengths)
        return rows.reshape(-1, *column.shape)
    values = array.field("values")
    sizes = np.diff(offsets_of(values)).astype(np.int64)
    flat = word_view(normalized(values.flatten())).astype(column.dtype, copy=False)
    is_sparse = np.asarray(array.field("type")) == 0
    if not is_sparse.any():
        return flat.reshape(-1, *column.shape)
    at_row = np.repeat(np.arange(len(array)), sizes)
    place = np.arange(len(flat)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    place[is_sparse[at_row]] = word_view(array.field("indices").flatten())
    rows = np.zeros((len(array), *column.lengths), column.dtype)
    rows[at_row, place] = flat
    return rows.reshape(-1, *column.shape)
