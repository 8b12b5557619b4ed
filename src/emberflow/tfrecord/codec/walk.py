"""Finding the features of many records at once.

The records of a chunk are walked in lockstep: step j reads entry j of the map of every record, by a few numpy
calls for all of them. A record that is not written as all known writers do (key before value, nothing unknown,
lengths that fit) is *irregular*: the plain parser reads it, and decides its meaning.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emberflow.tfrecord.codec.protobuf import Array, read_lengths, words

_SHAPE = np.uint64(0x80FF80FF)  # tag, a length of one byte, tag, a length of one byte
_SHAPE_IS = np.uint64(0x000A000A)
_BYTE = np.uint64(0xFF)


@dataclass(frozen=True, kw_only=True)
class FeatureSpans:
    """Where the features of some records are.

    Attributes:
        starts: For each name and record, where the feature's message starts; -1 where there is none.
        ends: Where it ends.
        irregular: The records that the plain parser must read.
    """

    starts: Array
    ends: Array
    irregular: Array


@dataclass(frozen=True, kw_only=True)
class _MapEntry:
    """One entry of the map, for each record that has one."""

    key: Array
    key_size: Array
    start: Array
    end: Array
    is_right: Array


def whole_messages(data: Array, starts: Array, ends: Array, tag: int) -> tuple[Array, Array, Array]:
    """Return the content of messages that are one field with the given tag; and which are not."""
    view = words(data)
    at = np.minimum(starts, len(view) - 2)
    length, size = read_lengths(view, at + 1)
    begin = at + 1 + size
    is_empty = starts == ends
    is_irregular = ~is_empty & ((data[at] != tag) | (size == 0) | (begin + length != ends))
    return np.where(is_empty | is_irregular, ends, begin), ends, is_irregular


def find_features(data: Array, starts: Array, ends: Array, names: Sequence[bytes]) -> FeatureSpans:
    """Find the values of a map's entries by their keys.

    Args:
        data: The chunk's bytes, padded.
        starts: For each record, where the map's first entry starts.
        ends: For each record, where its last entry ends.
        names: The keys to find; others are skipped.
    """
    view = words(data)
    numbers = {name: place for place, name in enumerate(names)}
    found_starts = np.full((len(names), len(starts)), -1, np.int64)
    found_ends = np.full((len(names), len(starts)), -1, np.int64)
    irregular = np.zeros(len(starts), bool)
    rows = np.flatnonzero(starts < ends)
    at, last = starts[rows], ends[rows]
    while len(rows):
        step = _read_step(data, view, at, last)
        if not step.is_right.all():
            irregular[rows[~step.is_right]] = True
            rows, last, step = _kept(rows, last, step)
            if not len(rows):
                break
        which = _identify(data, view, step, numbers)
        if isinstance(which, int):
            if which >= 0:
                found_starts[which, rows], found_ends[which, rows] = step.start, step.end
        else:
            some = which >= 0
            found_starts[which[some], rows[some]] = step.start[some]
            found_ends[which[some], rows[some]] = step.end[some]
        more = step.end < last
        at = step.end
        if not more.all():
            rows, at, last = rows[more], at[more], last[more]
    return FeatureSpans(starts=found_starts, ends=found_ends, irregular=irregular)


def _kept(rows: Array, last: Array, step: _MapEntry) -> tuple[Array, Array, _MapEntry]:
    keep = step.is_right
    kept = _MapEntry(
        key=step.key[keep],
        key_size=step.key_size[keep],
        start=step.start[keep],
        end=step.end[keep],
        is_right=keep[keep],
    )
    return rows[keep], last[keep], kept


def _read_step(data: Array, view: Array, at: Array, last: Array) -> _MapEntry:
    word = view[at]
    if ((word & _SHAPE) == _SHAPE_IS).all():  # the usual entry: both lengths in one byte, four known places
        end = at + 2 + ((word >> np.uint64(8)) & _BYTE).astype(np.int64)
        key = at + 4
        key_size = ((word >> np.uint64(24)) & _BYTE).astype(np.int64)
        is_right = np.ones(len(at), bool)
    else:
        length, size = read_lengths(view, at + 1)
        inside = at + 1 + size
        end = inside + length
        key_size, key_length = read_lengths(view, np.minimum(inside + 1, len(view) - 1))
        key = inside + 1 + key_length
        is_right = (data[at] == 0x0A) & (data[np.minimum(inside, len(data) - 1)] == 0x0A)
        is_right &= (size > 0) & (key_length > 0)
    key_end = key + key_size
    tag_at = np.minimum(key_end, len(view) - 2)
    length, size = read_lengths(view, tag_at + 1)
    start = key_end + 1 + size
    is_right &= (end <= last) & (data[tag_at] == 0x12) & (size > 0) & (start + length == end)
    return _MapEntry(key=key, key_size=key_size, start=start, end=end, is_right=is_right)


def _identify(data: Array, view: Array, step: _MapEntry, numbers: dict[bytes, int]) -> int | Array:
    """Return the name of each record's entry: one number where it is the same for all (the usual case)."""
    size = int(step.key_size[0])
    if size and (step.key_size == size).all():
        at = int(step.key[0])
        name = data[at : at + size].tobytes()
        if _is_name(view, step.key, name).all():
            return numbers.get(name, -1)
    out = np.full(len(step.key), -1, np.int64)
    for name, number in numbers.items():
        some = np.flatnonzero(step.key_size == len(name))
        if len(some):
            out[some[_is_name(view, step.key[some], name)]] = number
    return out


def _is_name(view: Array, at: Array, name: bytes) -> Array:
    """Return the places where the name is."""
    is_it = np.ones(len(at), bool)
    for place in range(0, len(name), 8):
        part = name[place : place + 8]
        keep = np.uint64((1 << (8 * len(part))) - 1)
        is_it &= (view[at + place] & keep) == np.uint64(int.from_bytes(part, "little"))
    return is_it
