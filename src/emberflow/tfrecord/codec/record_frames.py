"""TFRecord's frame: length, masked checksum of the length, payload, masked checksum of the payload.

`frame` completes records that were laid out with room for the frame; `read_chunks` finds records in a stream. A chunk
holds complete records only. The last chunk reports what is wrong with a file, after all valid records.
"""

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from google_crc32c import value as crc32c

from emberflow.errors import DataError
from emberflow.tfrecord.codec.protobuf import PAD, Array, numbers

HEAD = 12  # bytes before a payload: its length and the checksum of the length
TAIL = 4  # bytes after a payload: its checksum
CHUNK_BYTES = 4 << 20  # decoded at a time: more would not stay in the processor's cache
MAX_RECORD_BYTES = (
    1 << 30
)  # a corrupt length must not exhaust the memory; the option maxRecordBytes raises it

_MASK = 0xA282EAD8  # of the TFRecord format
_length_at = struct.Struct("<Q").unpack_from
_head_at = struct.Struct("<QI").unpack_from


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Complete records from one range of a file.

    Attributes:
        data: The bytes, with padding after them.
        starts: Where each payload starts in `data`.
        ends: Where each payload ends.
        corrupt: The records whose payload does not match the checksum in the file.
        offset: Where `data` starts in the file.
        end: Where the last record ends in the file.
        broken: Why nothing can be read after this chunk, or None.
        rest: The first bytes that could not be read.
    """

    data: Array
    starts: Array
    ends: Array
    corrupt: Array = field(default_factory=lambda: np.empty(0, np.int64))
    offset: int = 0
    end: int = 0
    broken: DataError | None = None
    rest: bytes = b""

    def payload(self, record: int) -> bytes:
        """Return the bytes of one record."""
        return bytes(self.data[self.starts[record] : self.ends[record]])


@dataclass(frozen=True, kw_only=True)
class FrameRules:
    """How to read frames."""

    verify: bool = True
    max_record_bytes: int = MAX_RECORD_BYTES
    chunk_bytes: int = CHUNK_BYTES


def masked(checksum: int) -> int:
    """Return a checksum as TFRecord stores it.

    >>> hex(masked(0))
    '0xa282ead8'
    """
    return (((checksum >> 15) | (checksum << 17)) + _MASK) & 0xFFFFFFFF


def _masked_all(checksums: Array) -> Array:
    wide = checksums.astype(np.uint64)
    rotated = ((wide >> np.uint64(15)) | (wide << np.uint64(17))) & np.uint64(0xFFFFFFFF)
    return ((rotated + np.uint64(_MASK)) & np.uint64(0xFFFFFFFF)).astype(np.uint32)


def _tables() -> Array:
    """Return the contribution of each of eight bytes to the checksum of an eight byte number."""
    zero = crc32c(bytes(8))
    rows = [
        [crc32c(bytes(at) + bytes([byte]) + bytes(7 - at)) ^ zero for byte in range(256)] for at in range(8)
    ]
    rows[0] = [number ^ zero for number in rows[0]]  # the checksum is linear: the constant part is added once
    return np.array(rows, np.uint32)


_TABLES = _tables()


def length_checksums(lengths: Array) -> Array:
    """Return the masked checksum of each length as in a header."""
    octets = np.ascontiguousarray(lengths.astype("<u8")).view(np.uint8).reshape(-1, 8)
    checksums = _TABLES[0][octets[:, 0]]
    for at in range(1, 8):
        checksums = checksums ^ _TABLES[at][octets[:, at]]
    return _masked_all(checksums)


def frame(out: Array, starts: Array, lengths: Array) -> None:
    """Fill in the frames of records whose payloads are already in place.

    Args:
        out: The bytes of all records, with `HEAD` bytes free before and `TAIL` bytes free after each payload.
        starts: Where each payload starts.
        lengths: The length of each payload.
    """
    numbers(out, "<u8")[starts - HEAD] = lengths.astype(np.uint64)
    numbers(out, "<u4")[starts - TAIL] = length_checksums(lengths)
    ends = starts + lengths
    data = out.tobytes()
    checksums = [crc32c(data[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    numbers(out, "<u4")[ends] = _masked_all(np.array(checksums, np.uint32))


def frame_one(payload: bytes) -> bytes:
    """Return one record with its frame."""
    head = struct.pack("<Q", len(payload))
    return b"".join(
        [head, struct.pack("<I", masked(crc32c(head))), payload, struct.pack("<I", masked(crc32c(payload)))]
    )


def read_chunks(stream: Any, rules: FrameRules, offset: int = 0, stop: int | None = None) -> Iterator[Chunk]:
    """Read the records that start before `stop`; the stream is at a record's first byte, at `offset`.

    All chunks share one buffer: use a chunk before requesting the next one.
    """
    room = np.empty(rules.chunk_bytes + PAD, np.uint8)
    used = 0
    while True:
        got = _fill(stream, room, used)
        used += got
        chunk = _cut(room, used, offset, stop, rules, is_last=not got)
        fault = getattr(stream, "fault", "") if not got else ""
        if fault:
            chunk = replace(chunk, broken=corrupt_file(chunk.end, fault))
        if len(chunk.starts) or chunk.broken:
            yield chunk
        if not got or chunk.broken or (stop is not None and chunk.end >= stop):
            return
        done = chunk.end - offset
        if (
            not done
        ):  # one record fills the buffer: grow it with the bytes that arrive, not by a length in the file
            room = np.concatenate([room, np.empty(len(room), np.uint8)])
        room[: used - done] = room[done:used].copy()
        used -= done
        offset = chunk.end


def _fill(stream: Any, room: Array, used: int) -> int:
    """Read until the buffer is full or the stream ends; return the number of bytes."""
    target = memoryview(room)[used : len(room) - PAD]
    # HDFS's files inherit a `readinto` that only raises NotImplementedError.
    fills = getattr(type(stream), "readinto", io.RawIOBase.readinto) is not io.RawIOBase.readinto
    got = 0
    while got < len(target):
        block = None if fills else stream.read(len(target) - got)
        count = stream.readinto(target[got:]) if block is None else len(block)
        if not count:
            break
        if block is not None:
            target[got : got + count] = block
        got += count
    return got


def _cut(room: Array, used: int, offset: int, stop: int | None, rules: FrameRules, *, is_last: bool) -> Chunk:
    """Find the complete records of a buffer."""
    data = memoryview(room)[:used]
    starts, at, broken = _scan(data, offset, stop, rules)
    if broken is None and is_last and at < used and (stop is None or offset + at < stop):
        broken = corrupt_file(offset + at, f"it ends in the middle of a record, {used - at} bytes into it")
    heads = np.array(starts, np.int64)
    lengths = numbers(room, "<u8")[heads].astype(np.int64)
    if rules.verify and len(heads):
        wrong = np.flatnonzero(numbers(room, "<u4")[heads + 8] != length_checksums(lengths))
        if len(wrong):
            first = int(wrong[0])
            at = starts[first]
            broken = corrupt_file(offset + at, "the checksum of a record's length is wrong")
            heads, lengths = heads[:first], lengths[:first]
    begins = heads + HEAD
    ends = begins + lengths
    return Chunk(
        data=room[: used + PAD],
        starts=begins,
        ends=ends,
        corrupt=_wrong_payloads(data, room, begins, ends) if rules.verify else np.empty(0, np.int64),
        offset=offset,
        end=offset + at,
        broken=broken,
        rest=bytes(data[at : at + 65536]) if broken else b"",
    )


def _scan(
    data: memoryview, offset: int, stop: int | None, rules: FrameRules
) -> tuple[list[int], int, DataError | None]:
    """Follow the lengths; return where records start, where the last one ends, and why it stopped."""
    starts: list[int] = []
    at, size = 0, len(data)
    limit = size - HEAD if stop is None else min(size - HEAD, stop - offset - 1)
    most = rules.max_record_bytes
    while at <= limit:
        (length,) = _length_at(data, at)
        end = at + length + HEAD + TAIL
        if length > most or end > size:  # do not wait for gigabytes that a corrupt length announces
            return starts, at, _refusal(data, at, offset, rules)
        starts.append(at)
        at = end
    return starts, at, None


def _refusal(data: memoryview, at: int, offset: int, rules: FrameRules) -> DataError | None:
    length, checksum = _head_at(data, at)
    if rules.verify and masked(crc32c(bytes(data[at : at + 8]))) != checksum:
        return corrupt_file(offset + at, "the checksum of a record's length is wrong")
    if length > rules.max_record_bytes:
        return DataError(
            f"A record is longer than maxRecordBytes={rules.max_record_bytes}. "
            f"Received: a length of {length} at byte {offset + at}.",
            fix=f'If the file is right, allow it: .option("maxRecordBytes", {length}).',
        )
    return None


def _wrong_payloads(data: memoryview, room: Array, begins: Array, ends: Array) -> Array:
    if not len(begins):
        return np.empty(0, np.int64)
    pairs = zip(begins.tolist(), ends.tolist(), strict=True)
    checksums = _masked_all(np.array([crc32c(bytes(data[a:b])) for a, b in pairs], np.uint32))
    return np.flatnonzero(checksums != numbers(room, "<u4")[ends])


def corrupt_file(position: int, reason: str) -> DataError:
    """Return the error for a file that is not TFRecord after some byte."""
    return DataError(
        f"Expected TFRecord, but {reason}. Received: byte {position} of the (uncompressed) file.",
        fix='Write the file again, or skip what is broken: .option("mode", "DROPMALFORMED") or '
        '.option("ignoreCorruptFiles", "true"). Another compression is named by .option("compression", ...).',
    )
