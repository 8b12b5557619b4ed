"""Arrow to TFRecord: one batch of rows becomes the bytes of its records, without a loop over rows.

All lengths are known before a byte is written, so each record has its place in one array. The fields are written
column by column from right to left: a varint is written as a window of fixed width whose right end is in place, and
the bytes that it overwrites on its left are written after it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from emberflow.tfrecord.codec.feature_columns import Column, Doubles, RecordType
from emberflow.tfrecord.codec.feature_values import Kind, Values, values_of
from emberflow.tfrecord.codec.headers import Header
from emberflow.tfrecord.codec.protobuf import (
    Array,
    flat_varints,
    paste_ragged,
    rows_as_windows,
    varint_matrix,
    varint_sizes,
    windows,
)
from emberflow.tfrecord.codec.record_frames import HEAD, TAIL, frame

_TAGS: dict[Kind, bytes] = {"bytes": b"\x0a", "float": b"\x12", "int": b"\x1a"}


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """One column, laid out: for each of its rows the size of the header and of the values."""

    header: Header
    rows: Array | None
    body: Array
    sizes: Array
    data: Array
    varints: tuple[Array, Array] | None = None
    """The numbers and their sizes where each row has one number: they are written without an earlier copy."""

    def total(self, rows: int) -> Array:
        """Return the size of this column in each of the batch's rows, in bytes."""
        if self.rows is None:
            return self.sizes
        out = np.zeros(rows, np.int64)
        out[self.rows] = self.sizes
        return out

    def write(self, out: Array, ends: Array) -> None:
        """Write header and values of each row, ending at `ends`."""
        ends = ends if self.rows is None else ends[self.rows]
        if not len(ends):
            return
        if self.varints is not None:
            values, sizes = self.varints
            width = int(sizes.max())
            windows(out, width)[ends - width] = rows_as_windows(varint_matrix(values, sizes, width))
        else:
            paste_ragged(out, ends - self.body, self.data, self.body)
        self.header.write(out, ends - self.sizes, self.body)


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """The framed records of a batch, and where their payloads are."""

    data: Array
    starts: Array
    lengths: Array


def encode(batch: Any, columns: Sequence[Column], record_type: RecordType, doubles: Doubles) -> Encoded:
    """Return the framed records of a batch."""
    rows = batch.num_rows
    if record_type == "ByteArray":
        values = values_of(batch.column(0), columns[0], doubles)
        lengths = _lengths_with_gaps(values, rows)
        return _framed(lengths, lambda out, ends: paste_ragged(out, ends - lengths, values.data, lengths))
    entries = [
        _entry(column.name.encode(), values_of(batch.column(place), column, doubles))
        for place, column in enumerate(columns)
    ]
    if record_type == "Example":
        return _encode_groups(rows, [(b"\x0a", entries)])
    deep = [entry for entry, column in zip(entries, columns, strict=True) if column.depth == 2]
    flat = [entry for entry, column in zip(entries, columns, strict=True) if column.depth < 2]
    groups = [(b"\x0a", flat), (b"\x12", deep)]
    return _encode_groups(rows, [group for group in groups if group[1]] or groups[:1])


def _encode_groups(rows: int, groups: list[tuple[bytes, list[_Entry]]]) -> Encoded:
    """Lay out messages that are one map of entries each, one message after the other in each record."""
    inner = [sum((entry.total(rows) for entry in entries), np.zeros(rows, np.int64)) for _, entries in groups]
    heads = [1 + varint_sizes(size.astype(np.uint64)) for size in inner]
    lengths = sum((a + b for a, b in zip(inner, heads, strict=True)), np.zeros(rows, np.int64))

    def write(out: Array, ends: Array) -> None:
        for (tag, entries), size, head in reversed(list(zip(groups, inner, heads, strict=True))):
            for entry in reversed(entries):
                entry.write(out, ends)
                ends = ends - entry.total(rows)
            _write_tagged_lengths(out, ends - head, tag, size, head)
            ends = ends - head

    return _framed(lengths, write)


def _framed(lengths: Array, write: Callable[[Array, Array], None]) -> Encoded:
    ends = np.cumsum(lengths + HEAD + TAIL) - TAIL
    out = np.empty(int(ends[-1]) + TAIL if len(ends) else 0, np.uint8)
    write(out, ends)
    frame(out, ends - lengths, lengths)
    return Encoded(data=out, starts=ends - lengths, lengths=lengths)


def _lengths_with_gaps(values: Values, rows: int) -> Array:
    if values.rows is None or values.lengths is None:
        return values.lengths
    out = np.zeros(rows, np.int64)
    out[values.rows] = values.lengths
    return out


def _entry(key: bytes | None, values: Values) -> _Entry:
    """Lay out one column of the batch, or (without a key) the inner features of an array of arrays."""
    if values.steps is not None:
        return _list_entry(key, values, values.steps)
    varints = None
    data = values.data
    is_single = bool((values.counts == 1).all())
    if values.kind == "float":
        body = 4 * values.counts
        data = np.ascontiguousarray(data).view(np.uint8)
    elif values.kind == "int":
        if is_single and key is not None:  # inner features are too close for a window
            numbers = np.ascontiguousarray(data).view(np.uint64)
            body = varint_sizes(numbers)
            varints = (numbers, body)
        else:
            data, sizes = flat_varints(np.ascontiguousarray(data).view(np.uint64))
            body = _sums(sizes, values.counts)
    elif is_single:
        body = values.lengths
    else:
        data, body = _tagged_bytes(data, values.lengths, values.counts)
    is_bytes = values.kind == "bytes"
    header = Header(key, _TAGS[values.kind], is_single or not is_bytes, keeps_empty=is_bytes)
    sizes = body + header.sizes(body)
    return _Entry(header=header, rows=values.rows, body=body, sizes=sizes, data=data, varints=varints)


def _list_entry(key: bytes | None, values: Values, steps: Array) -> _Entry:
    """Lay out an array of arrays: its inner arrays are features one after the other, then grouped by row."""
    inner = _entry(
        None, Values(kind=values.kind, data=values.data, lengths=values.lengths, counts=values.counts)
    )
    ends = np.cumsum(inner.sizes) + HEAD  # room on the left for the bytes that a varint's window overwrites
    flat = np.empty(int(ends[-1]) if len(ends) else HEAD, np.uint8)
    inner.write(flat, ends)
    body = _sums(inner.sizes, steps)
    header = Header(key, b"", False)
    sizes = body + header.sizes(body)
    return _Entry(header=header, rows=values.rows, body=body, sizes=sizes, data=flat[HEAD:])


def _tagged_bytes(data: Array, lengths: Array, counts: Array) -> tuple[Array, Array]:
    """Return values of bytes, each with its tag and length before it, and their size for each row."""
    heads = 1 + varint_sizes(lengths.astype(np.uint64))
    sizes = heads + lengths
    ends = np.cumsum(sizes)
    out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    paste_ragged(out, ends - lengths, data, lengths)
    _write_tagged_lengths(out, ends - sizes, b"\x0a", lengths, heads)
    return out, _sums(sizes, counts)


def _sums(sizes: Array, counts: Array) -> Array:
    """Return the sums over consecutive groups of the given counts."""
    if len(sizes) == len(counts) and (counts == 1).all():
        return sizes
    before = np.concatenate([[0], np.cumsum(sizes)])
    ends = np.cumsum(counts)
    return before[ends] - before[ends - counts]


def _write_tagged_lengths(out: Array, at: Array, tag: bytes, lengths: Array, heads: Array) -> None:
    """Write a tag and a length at each place; `heads` is the size of both."""
    for width in np.unique(heads).tolist():
        some = slice(None) if (heads == width).all() else np.flatnonzero(heads == width)
        head = np.empty((len(heads[some]), width), np.uint8)
        head[:, 0] = tag[0]
        head[:, 1:] = varint_matrix(lengths[some].astype(np.uint64), heads[some] - 1, width - 1)
        windows(out, width)[at[some]] = rows_as_windows(head)
