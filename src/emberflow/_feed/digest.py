"""An order-free digest of rows: the same rows give the same digest in any order and any batches.

It decides whether a later attempt holds the same rows, and so may resume in the middle of an epoch. Keys and
numbers are hashed completely; of strings, binaries and lists only the length and sixteen evenly spaced values, so
that a digest costs little compared with the delivery of the row by Spark.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from emberflow._feed.arrays import (
    KEY,
    is_bytes,
    is_list,
    is_text,
    is_vector,
    leaf_columns,
    normalized,
    offsets_of,
    valid_rows,
    word_view,
)
from emberflow._feed.element_types import as_numbers, is_fixed_width

Words = NDArray[np.uint64]
SAMPLES = 16  # values of a list or string: enough to notice another row, cheap for rows of many kilobytes

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0xD6E8FEB86659FD93)
_WIDTHS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def digest_of(batch: Any) -> int:
    """Return the digest of a record batch; digests add up, modulo 2**64."""
    if not batch.num_rows:
        return 0
    total = np.zeros(batch.num_rows, np.uint64)
    if batch.schema.get_field_index(KEY) >= 0:
        _mix(total, _words(batch.column(KEY)))
    for leaf in leaf_columns(batch.schema):
        _mix(total, _hash_column(normalized(leaf.array_in(batch))))
    _finish(total)
    return int(total.sum(dtype=np.uint64))


def add_digests(one: int, other: int) -> int:
    """Return the digest of both sets of rows together."""
    return (one + other) % 2**64


def _mix(total: Words, words: Words) -> None:
    """Mix a column into the rows' hashes, in place: two passes, no copies."""
    np.bitwise_xor(total, words, out=total)
    np.multiply(total, _FACTOR, out=total)
    # A product carries upwards only: without this step the top bits of a word would not affect lower bits.
    np.bitwise_xor(total, total >> np.uint64(32), out=total)


def _finish(total: Words) -> None:
    for shift in (30, 27):
        np.bitwise_xor(total, total >> np.uint64(shift), out=total)
        np.multiply(total, _FACTOR, out=total)
    np.bitwise_xor(total, total >> np.uint64(31), out=total)


def _hash_column(array: Any) -> Words:
    for fits, hash_of in _HASHES:
        if fits(array.type):
            words = hash_of(array)
            break
    else:
        numbers = as_numbers(array)  # of a type that only `ELEMENT_TYPES` lists
        words = _words(numbers) if is_fixed_width(numbers.type) else np.zeros(len(array), np.uint64)
    valid = valid_rows(array)
    return words if valid is None else np.where(valid, words, _NULL)


def _words(array: Any) -> Words:
    view = word_view(array)
    return view.view(_WIDTHS[view.dtype.itemsize]).astype(np.uint64, copy=False)


def _flags(array: Any) -> Words:
    return np.asarray(array.fill_null(False).to_numpy(zero_copy_only=False)).astype(np.uint64)


def _decimals(array: Any) -> Words:
    buffer = array.buffers()[1]
    width = array.type.bit_width // 64
    words = np.frombuffer(buffer, np.uint64, len(array) * width, array.offset * width * 8)
    return words.reshape(len(array), width)[:, 0]


def _times(array: Any) -> Words:
    wide = pa.int32() if array.type.bit_width == 32 else pa.int64()
    return _words(array.view(wide))


def _samples(array: Any) -> Words:
    """Hash the length of each row and the values at sixteen places of it."""
    offsets = offsets_of(array)
    starts, sizes = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    values = _values(array)
    total = sizes.astype(np.uint64)
    if not len(values):
        return total
    if sizes[0] and (sizes == sizes[0]).all():
        return _samples_of_equals(total, values[int(starts[0]) :], int(sizes[0]))
    last = len(values) - 1
    for place in range(SAMPLES):  # as many for every row: a hash must not depend on the row's neighbours
        _mix(total, values[np.minimum(starts + sizes * place // SAMPLES, last)])
    return np.where(sizes > 0, total, np.uint64(0))


def _samples_of_equals(total: Words, values: NDArray[Any], size: int) -> Words:
    """Hash the same values of rows that all have one size: they are columns of a matrix."""
    matrix = values[: len(total) * size].reshape(len(total), size)
    for place in range(SAMPLES):
        _mix(total, matrix[:, size * place // SAMPLES])
    return total


def _values(array: Any) -> NDArray[Any]:
    """Return one integer for each value that the offsets of an array point at."""
    if is_text(array.type) or is_bytes(array.type):
        buffer = array.buffers()[2]
        return np.frombuffer(buffer, np.uint8) if buffer is not None else np.zeros(0, np.uint8)
    values = normalized(array.values)
    if is_fixed_width(values.type) and not values.null_count:
        view = word_view(values)  # stays narrow until it is sampled: long lists are not copied
        return view.view(_WIDTHS[view.dtype.itemsize])
    return _hash_column(values)


def _vectors(array: Any) -> Words:
    total = _hash_column(array.field("values"))
    _mix(total, _hash_column(array.field("indices")))
    return total


_HASHES: tuple[tuple[Callable[[Any], bool], Callable[[Any], Words]], ...] = (
    (is_fixed_width, _words),
    (pa.types.is_boolean, _flags),
    (pa.types.is_decimal, _decimals),
    (pa.types.is_temporal, _times),
    (is_text, _samples),
    (is_bytes, _samples),
    (is_list, _samples),
    (is_vector, _vectors),
)
