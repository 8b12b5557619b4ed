"""Protobuf's numbers and lengths, many at a time, in numpy.

All functions use windows: a window is a view of a byte array with one element per *byte*, of any width, so that one
index operation reads (or writes) a field of every record in one call, wherever it starts.
"""

from typing import Any

import numpy as np

Array = Any  # a numpy array; numpy's own types would need a dtype in every signature
PAD = 16
"""Bytes after the end of a buffer, so that a wide window may start at its last byte."""

_WORD = np.dtype("<u8")
_TOP_BITS = np.uint64(0x8080808080808080)
_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_ONE, _TWO, _FOUR = np.uint64(1), np.uint64(2), np.uint64(4)


def padded(data: bytes | bytearray | memoryview) -> Array:
    """Return the bytes as an array with `PAD` zeros after them."""
    out = np.zeros(len(data) + PAD, np.uint8)
    out[: len(data)] = np.frombuffer(data, np.uint8)
    return out


def windows(buffer: Array, width: int) -> Array:
    """Return the view whose element i is the `width` bytes from i on."""
    return np.ndarray((max(len(buffer) - width + 1, 0),), f"V{width}", buffer, strides=(1,))


def words(buffer: Array) -> Array:
    """Return the view whose element i is the little-endian 64 bit number that starts at byte i."""
    return np.ndarray((max(len(buffer) - 7, 0),), _WORD, buffer, strides=(1,))


def numbers(buffer: Array, dtype: str) -> Array:
    """Return the view whose element i is the number that starts at byte i."""
    kind = np.dtype(dtype)
    return np.ndarray((max(len(buffer) - kind.itemsize + 1, 0),), kind, buffer, strides=(1,))


def rows_as_windows(matrix: Array) -> Array:
    """Return a matrix of bytes as one window per row."""
    return np.ascontiguousarray(matrix).view(f"V{matrix.shape[1]}").ravel()


def varint_sizes(values: Array) -> Array:
    """Return the size of each unsigned number as a varint, in bytes."""
    sizes = np.ones(len(values), np.int64)
    largest = int(values.max()) if len(values) else 0
    for bits in range(7, 64, 7):
        if largest < 1 << bits:
            break
        sizes += values >= np.uint64(1 << bits)
    return sizes


def varint_bytes(value: int) -> bytes:
    """Return one number as a varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint_matrix(values: Array, sizes: Array, width: int) -> Array:
    """Return one row of bytes per number, its varint at the right end after undefined bytes."""
    out = np.empty((len(values), width), np.uint8)
    for back in range(width):
        shift = (7 * np.maximum(sizes - 1 - back, 0)).astype(np.uint64)
        septet = ((values >> shift) & np.uint64(0x7F)).astype(np.uint8)
        out[:, width - 1 - back] = septet if back == 0 else septet | 0x80
    return out


def flat_varints(values: Array) -> tuple[Array, Array]:
    """Return all numbers as concatenated varints, and the size of each."""
    sizes = varint_sizes(values)
    ends = np.cumsum(sizes)
    width = int(sizes.max()) if len(sizes) else 1
    out = np.empty(width + (int(ends[-1]) if len(ends) else 0), np.uint8)
    matrix = varint_matrix(values, sizes, width)
    # Last number first: the bytes left of a varint are overwritten by the number before it.
    windows(out, width)[ends[::-1]] = rows_as_windows(matrix[::-1])
    return out[width:], sizes


def _squeeze(word: Array) -> Array:
    """Return the number made of the low seven bits of the eight bytes of each word."""
    word = word & _LOW_BITS
    word = (word & np.uint64(0x007F007F007F007F)) | ((word & np.uint64(0x7F007F007F007F00)) >> _ONE)
    word = (word & np.uint64(0x00003FFF00003FFF)) | ((word & np.uint64(0x3FFF00003FFF0000)) >> _TWO)
    return (word & np.uint64(0x000000000FFFFFFF)) | ((word & np.uint64(0x0FFFFFFF00000000)) >> _FOUR)


def read_lengths(word_view: Array, at: Array) -> tuple[Array, Array]:
    """Read one varint per position; return the numbers and their sizes (size 0: longer than eight bytes)."""
    word = word_view[at]
    if not (word & np.uint64(0x80)).any():
        return (word & np.uint64(0x7F)).astype(np.int64), np.ones(len(at), np.int64)
    stop = ~word & _TOP_BITS
    last = stop & (~stop + _ONE)  # the lowest byte whose top bit is clear
    sizes = np.where(last == 0, 0, _byte_number(last) + 1)
    mask = (last << _ONE) - _ONE
    return _squeeze(word & mask).astype(np.int64), sizes


def _byte_number(bit: Array) -> Array:
    """Return which byte holds the one top bit that is set."""
    number = np.zeros(len(bit), np.int64)
    for byte in range(1, 8):
        number += bit > np.uint64(0x80 << (8 * (byte - 1)))
    return number


def read_varints(word_view: Array, starts: Array, sizes: Array) -> Array:
    """Read numbers whose varints have `sizes` (1 to 10) bytes; return them as int64."""
    short = np.minimum(sizes, 8).astype(np.uint64)
    keep = np.uint64(0xFFFFFFFFFFFFFFFF) >> (np.uint64(64) - np.uint64(8) * short)
    value = _squeeze(word_view[starts] & keep)
    long = np.flatnonzero(sizes > 8)
    if len(long):
        word = word_view[starts[long] + 8]
        value[long] |= (word & np.uint64(0x7F)) << np.uint64(56)
        tenth = long[sizes[long] > 9]
        value[tenth] |= ((word_view[starts[tenth] + 8] >> np.uint64(8)) & np.uint64(1)) << np.uint64(63)
    return value.view(np.int64)


def copy_ragged(source: Array, starts: Array, lengths: Array) -> Array:
    """Return the given ranges of a byte array, concatenated."""
    total = int(lengths.sum())
    if not total:
        return np.empty(0, np.uint8)
    width = int(lengths[0])
    if (lengths == width).all():
        return windows(source, width)[starts].view(np.uint8).reshape(-1)
    if total >= 32 * len(starts):  # long ranges: a memcpy for each is cheaper than an index per byte
        view = memoryview(source)
        ends = starts + lengths
        parts = [view[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
        return np.frombuffer(b"".join(parts), np.uint8)
    return source[_every_byte(starts, lengths, total)]


def paste_ragged(target: Array, at: Array, source: Array, lengths: Array) -> None:
    """Write consecutive ranges of `source` to the given places of a byte array."""
    total = int(lengths.sum())
    if not total:
        return
    width = int(lengths[0])
    if (lengths == width).all():
        windows(target, width)[at] = rows_as_windows(source[:total].reshape(len(at), width))
    elif total >= 32 * len(at):
        view, content = memoryview(target), source.tobytes()
        done = 0
        for start, length in zip(at.tolist(), lengths.tolist(), strict=True):
            view[start : start + length] = content[done : done + length]
            done += length
    else:
        target[_every_byte(at, lengths, total)] = source[:total]


def _every_byte(starts: Array, lengths: Array, total: int) -> Array:
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(total)
