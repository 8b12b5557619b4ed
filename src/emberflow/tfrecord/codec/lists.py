"""The values of many features at once: lists of int64, of float32, of bytes, and lists of features."""

from dataclasses import dataclass

import numpy as np

from emberflow.tfrecord.codec.feature_values import Kind
from emberflow.tfrecord.codec.protobuf import (
    PAD,
    Array,
    copy_ragged,
    numbers,
    read_lengths,
    read_varints,
    words,
)
from emberflow.tfrecord.codec.record_layout import Payload

_KIND_OF_TAG: dict[int, Kind] = {0x0A: "bytes", 0x12: "float", 0x1A: "int"}
_TOP_BITS = np.uint64(0x8080808080808080)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_FEW = 8
"""With fewer records left than this, plain Python continues: numpy's calls would cost more."""


@dataclass(frozen=True, kw_only=True)
class LeafValues:
    """The values of some features.

    Attributes:
        kind: Their kind; None where no feature has a value.
        counts: How many values each feature has; -1 where it is missing or has no kind.
        data: All values, concatenated: int64, float32, or bytes.
        lengths: For bytes, the length of each value.
        irregular: The features that the plain parser must read.
    """

    kind: Kind | None
    counts: Array
    data: Array
    lengths: Array = None
    irregular: Array


def read_leaves(data: Array, starts: Array, ends: Array) -> LeafValues:
    """Read the values of features of one kind; a feature of another kind than the first one is irregular."""
    view = words(data)
    rows = np.flatnonzero(starts < ends)
    irregular = np.zeros(len(starts), bool)
    counts = np.full(len(starts), -1, np.int64)
    if not len(rows):
        return LeafValues(kind=None, counts=counts, data=np.empty(0, np.int64), irregular=irregular)
    at, last = (starts, ends) if len(rows) == len(starts) else (starts[rows], ends[rows])
    tag = data[at]
    kind = _KIND_OF_TAG.get(int(tag[0]))
    length, size = read_lengths(view, at + 1)
    begin = at + 1 + size
    wrong = (tag != tag[0]) | (size == 0) | (begin + length != last)
    if kind is None or wrong.any():
        irregular[rows[wrong] if kind else rows] = True
        keep = ~wrong if kind else np.zeros(len(rows), bool)
        rows, begin, last = rows[keep], begin[keep], last[keep]
    if kind == "bytes":
        part, starts_of, lengths, wrong = split_repeated(data, begin, last)
        values: Array = copy_ragged(data, starts_of, lengths)
    else:
        part, values, wrong = _numbers(data, view, begin, last, kind)
        lengths = None
    counts[rows] = part
    irregular[rows[wrong]] = True
    return LeafValues(kind=kind, counts=counts, data=values, lengths=lengths, irregular=irregular)


def payload_leaves(data: Array, payload: Payload) -> LeafValues:
    """Read values at known places: packed numbers, or one value of bytes, in every feature."""
    irregular = np.zeros(len(payload.start), bool)
    if payload.kind == "bytes":
        values: Array = copy_ragged(data, payload.start, payload.length)
        counts = np.ones(len(payload.start), np.int64)
        return LeafValues(
            kind="bytes", counts=counts, data=values, lengths=payload.length, irregular=irregular
        )
    if payload.kind == "float":
        if (payload.length == 4).all():
            return LeafValues(
                kind="float",
                counts=np.ones(len(irregular), np.int64),
                data=numbers(data, "<f4")[payload.start],
                irregular=irregular,
            )
        irregular = payload.length % 4 != 0
        length = payload.length - payload.length % 4
        return LeafValues(
            kind="float",
            counts=length // 4,
            data=copy_ragged(data, payload.start, length).view("<f4"),
            irregular=irregular,
        )
    counts, values, irregular = _integers(data, words(data), payload.start, payload.length)
    return LeafValues(kind="int", counts=counts, data=values, irregular=irregular)


def _numbers(
    data: Array, view: Array, begin: Array, last: Array, kind: Kind | None
) -> tuple[Array, Array, Array]:
    """Read packed numbers: how many each list has, all of them, and which lists are irregular."""
    is_empty = begin == last
    at = np.minimum(begin, len(view) - 2)
    length, size = read_lengths(view, at + 1)
    start = at + 1 + size
    wrong = ~is_empty & ((data[at] != 0x0A) | (size == 0) | (start + length != last))
    if is_empty.any() or wrong.any():
        length = np.where(is_empty | wrong, 0, length)
    if kind == "float":
        wrong |= length % 4 != 0
        length = length - length % 4
        return length // 4, copy_ragged(data, start, length).view("<f4"), wrong
    counts, values, cut = _integers(data, view, start, length)
    return counts, values, wrong | cut


def _integers(data: Array, view: Array, start: Array, length: Array) -> tuple[Array, Array, Array]:
    if len(length) and length.min() > 0 and length.max() <= 8:
        keep = _ALL >> (64 - 8 * length).astype(np.uint64)
        is_single = (view[start] & keep & _TOP_BITS) == (_TOP_BITS & (keep >> np.uint64(8)))
        if is_single.all():  # one number per list: its size is the list's
            return np.ones(len(length), np.int64), read_varints(view, start, length), ~is_single
    flat = np.concatenate([copy_ragged(data, start, length), np.zeros(PAD, np.uint8)])
    stops = flat[: len(flat) - PAD] < 0x80
    ends = np.flatnonzero(stops)
    sizes = np.diff(ends, prepend=-1)
    limits = np.cumsum(length)
    before = np.concatenate([[0], np.cumsum(stops)])
    wrong = (length > 0) & ~np.concatenate([stops, [True]])[limits - 1]
    wrong[np.searchsorted(limits, ends[sizes > 10], side="right")] = True
    counts = before[limits] - before[limits - length]
    return counts, read_varints(words(flat), ends - sizes + 1, np.minimum(sizes, 10)), wrong


def split_repeated(data: Array, begin: Array, last: Array) -> tuple[Array, Array, Array, Array]:
    """Find the parts of messages that are one repeated field, number 1, of bytes or messages.

    Returns:
        How many parts each message has; start and length of all parts in order; which messages are irregular.
    """
    view = words(data)
    irregular = np.zeros(len(begin), bool)
    rows = np.flatnonzero(begin < last)
    at, end = begin[rows], last[rows]
    found: list[tuple[Array, Array, Array]] = []
    while len(rows) >= _FEW or (len(rows) and len(found) < _FEW):
        length, size = read_lengths(view, at + 1)
        start = at + 1 + size
        wrong = (data[at] != 0x0A) | (size == 0) | (start + length > end)
        if wrong.any():
            irregular[rows[wrong]] = True
            keep = ~wrong
            rows, end, start, length = rows[keep], end[keep], start[keep], length[keep]
        found.append((rows, start, length))
        at = start + length
        more = at < end
        if not more.all():
            rows, at, end = rows[more], at[more], end[more]
    found += [_split_one(data, view, *each, irregular) for each in zip(rows, at, end, strict=True)]
    return _in_order(found, len(begin), irregular)


def _split_one(
    data: Array, view: Array, row: Array, at: Array, end: Array, irregular: Array
) -> tuple[Array, Array, Array]:
    starts, lengths = [], []
    while at < end:
        length, size = read_lengths(view, np.array([at + 1]))
        start = at + 1 + int(size[0])
        if data[at] != 0x0A or not size[0] or start + int(length[0]) > end:
            irregular[row] = True
            break
        starts.append(start)
        lengths.append(int(length[0]))
        at = start + lengths[-1]
    return np.full(len(starts), row), np.array(starts, np.int64), np.array(lengths, np.int64)


def _in_order(
    found: list[tuple[Array, Array, Array]], messages: int, irregular: Array
) -> tuple[Array, Array, Array, Array]:
    if len(found) == 1 and len(found[0][0]) == messages:
        return np.ones(messages, np.int64), found[0][1], found[0][2], irregular
    none = np.empty(0, np.int64)
    rows, starts, lengths = (np.concatenate([none, *(each[k] for each in found)]) for k in range(3))
    order = np.argsort(rows, kind="stable")
    return np.bincount(rows, minlength=messages).astype(np.int64), starts[order], lengths[order], irregular
