"""TFRecord to Arrow: the records of a chunk become one batch of columns.

The fast path reads all records of a chunk together. The plain parser reads irregular records one by one, and both are
merged in the order of the file.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from emberflow.errors import DataError
from emberflow.tfrecord.codec.assemble import IrregularRecords, column_array, nested_array
from emberflow.tfrecord.codec.feature_columns import Column, RecordType
from emberflow.tfrecord.codec.lists import LeafValues, payload_leaves, read_leaves, split_repeated
from emberflow.tfrecord.codec.protobuf import Array, copy_ragged, read_lengths, words
from emberflow.tfrecord.codec.record_frames import Chunk
from emberflow.tfrecord.codec.record_layout import match_layout
from emberflow.tfrecord.codec.record_parser import parse_record, value_of
from emberflow.tfrecord.codec.walk import FeatureSpans, find_features, whole_messages


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """The columns of a chunk.

    Attributes:
        arrays: One Arrow array per column, with the rows that could be read.
        rows: The numbers of these records in the chunk, in order.
        refused: The records that could not be read, with the error.
    """

    arrays: list[Any]
    rows: Array
    refused: dict[int, DataError]


def decode(chunk: Chunk, columns: Sequence[Column], record_type: RecordType) -> Decoded:
    """Decode all records of a chunk except those whose checksum is wrong."""
    rows = np.delete(np.arange(len(chunk.starts)), chunk.corrupt)
    if record_type == "ByteArray":
        return Decoded(arrays=[_raw(chunk, rows, columns[0])], rows=rows, refused={})
    usual, irregular = rows, np.empty(0, np.int64)
    while True:
        arrays, is_irregular = _decode_fast(chunk, usual, columns, record_type)
        if not is_irregular.any():
            break
        irregular, usual = np.concatenate([irregular, usual[is_irregular]]), usual[~is_irregular]
    if not len(irregular):
        return Decoded(arrays=arrays, rows=rows, refused={})
    slow, refused = _decode_plain(chunk, np.sort(irregular), columns, record_type)
    good = np.array(sorted(slow), np.int64)
    order = np.argsort(np.concatenate([usual, good]), kind="stable")
    merged = [
        pa.concat_arrays([array, pa.array([slow[row][place] for row in good], column.type)]).take(order)
        for place, (array, column) in enumerate(zip(arrays, columns, strict=True))
    ]
    return Decoded(arrays=merged, rows=np.sort(np.concatenate([usual, good])), refused=refused)


def _raw(chunk: Chunk, rows: Array, column: Column) -> Any:
    lengths = (chunk.ends - chunk.starts)[rows]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    data = copy_ragged(chunk.data, chunk.starts[rows], lengths)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(rows), buffers).cast(column.type)


def _decode_plain(
    chunk: Chunk, rows: Array, columns: Sequence[Column], record_type: RecordType
) -> tuple[dict[int, list[Any]], dict[int, DataError]]:
    good: dict[int, list[Any]] = {}
    refused: dict[int, DataError] = {}
    names = {column.name for column in columns}
    for row in rows.tolist():
        try:
            record = parse_record(chunk.payload(row), record_type, names)
            good[row] = [value_of(record.get(column.name), column) for column in columns]
        except DataError as error:
            refused[row] = error
    return good, refused


def _decode_fast(
    chunk: Chunk, rows: Array, columns: Sequence[Column], record_type: RecordType
) -> tuple[list[Any], Array]:
    """Decode some records together; return the columns, and the irregular records (the columns are void if any)."""
    starts, ends = chunk.starts[rows], chunk.ends[rows]
    names = [column.name.encode() for column in columns]
    if record_type == "Example":
        begin, last, irregular = whole_messages(chunk.data, starts, ends, 0x0A)
        known, at = match_layout(chunk.data, begin, last, names)
        found = find_features(chunk.data, at, last, names)
        if any((found.starts[place] >= 0).any() for place in known):  # a repeated key: the last one counts
            known, found = {}, find_features(chunk.data, begin, last, names)
        irregular |= found.irregular
        deep = None
    else:
        (begin, middle), (second, last), irregular = _halves(chunk.data, starts, ends)
        known, found = {}, find_features(chunk.data, begin, middle, names)
        deep = find_features(chunk.data, second, last, names)
        irregular |= found.irregular | deep.irregular
    arrays = []
    for place, column in enumerate(columns):
        if place in known:
            array, wrong = _column(
                column, payload_leaves(chunk.data, known[place]), np.zeros(len(irregular), bool)
            )
        else:
            array, wrong = _decode_column(chunk.data, column, place, found, deep)
        arrays.append(array)
        irregular |= wrong
    return arrays, irregular


def _column(column: Column, leaves: LeafValues, wrong: Array) -> tuple[Any, Array]:
    try:
        return column_array(column, leaves, wrong)
    except IrregularRecords as irregular:
        return None, irregular.rows


def _decode_column(
    data: Array, column: Column, place: int, found: FeatureSpans, deep: FeatureSpans | None
) -> tuple[Any, Array]:
    starts, ends = found.starts[place], found.ends[place]
    if deep is not None and column.depth == 2:
        return _decode_nested(data, column, deep.starts[place], deep.ends[place], starts >= 0)
    wrong = np.zeros(len(starts), bool) if deep is None else (starts < 0) & (deep.starts[place] >= 0)
    return _column(column, read_leaves(data, starts, ends), wrong)


def _decode_nested(
    data: Array, column: Column, starts: Array, ends: Array, wrong: Array
) -> tuple[Any, Array]:
    """Decode lists of features: first the features of all lists, then their values."""
    steps, begin, lengths, irregular = split_repeated(data, starts, ends)
    leaves = read_leaves(data, begin, begin + lengths)
    owner = np.repeat(np.arange(len(starts)), steps)
    irregular[owner[leaves.irregular]] = True
    irregular |= wrong
    if irregular.any():
        return None, irregular
    try:
        return nested_array(column, leaves, np.where(starts < 0, -1, steps)), irregular
    except IrregularRecords as reason:
        return None, reason.rows


def _halves(
    data: Array, starts: Array, ends: Array
) -> tuple[tuple[Array, Array], tuple[Array, Array], Array]:
    """Find the two messages of a SequenceExample, context and lists; either may be missing."""
    view = words(data)
    irregular = np.zeros(len(starts), bool)
    at, parts = starts, []
    for tag in (0x0A, 0x12):
        place = np.minimum(at, len(view) - 2)
        is_there = (at < ends) & (data[place] == tag)
        length, size = read_lengths(view, place + 1)
        begin = np.where(is_there, place + 1 + size, at)
        end = np.where(is_there, begin + length, at)
        bad = is_there & ((size == 0) | (end > ends))
        irregular |= bad
        begin, end = np.where(bad, at, begin), np.where(bad, at, end)
        parts.append((begin, end))
        at = end
    return parts[0], parts[1], irregular | (at != ends)
