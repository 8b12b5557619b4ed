"""TFRecord files on any storage, compressed or not, read from the start or from the middle."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
from google_crc32c import value as crc32c

from emberflow import storage
from emberflow.errors import DataError
from emberflow.tfrecord.codec.protobuf import numbers
from emberflow.tfrecord.codec.record_frames import (
    HEAD,
    TAIL,
    Chunk,
    FrameRules,
    length_checksums,
    masked,
    read_chunks,
)
from emberflow.tfrecord.compression import BLOCK, Codec

_FIRST_LOOK = 8 << 10  # bytes; most records start within this


@contextmanager
def writing(path: str, codec: Codec, level: int = -1) -> Iterator[Any]:
    """Open a file for records; yields a stream with `write`."""
    with storage.open_file(path, "wb") as raw:
        if codec.writing is None:
            yield raw
        else:
            deflated = codec.writing(raw, level)
            yield deflated
            deflated.finish()
        if storage.is_local(path):  # otherwise a power failure may leave a published file empty
            raw.flush()
            os.fsync(raw.fileno())


def read_file(
    path: str, codec: Codec, rules: FrameRules, start: int = 0, stop: int | None = None
) -> Iterator[Chunk]:
    """Read the records of a file, or those that start from byte `start` up to byte `stop` of it."""
    with storage.open_file(path) as raw:
        if codec.reading is not None:
            yield from read_chunks(codec.reading(raw), rules)
            return
        begin = first_record(raw, start, rules) if start else 0
        limit = first_record(raw, stop, rules) if stop is not None else None
        end = begin
        raw.seek(begin)
        for chunk in read_chunks(raw, rules, begin, limit):
            end = chunk.end
            yield chunk
            if chunk.broken:
                return
        if limit is not None and limit != end:
            raise _bad_seam(limit, end)


def first_record(raw: IO[bytes], at: int, rules: FrameRules) -> int:
    """Return the start of the first record at or after a byte: the first place where both checksums are right.

    The checksum of the length finds candidates, that of the payload confirms one. Only a record that
    contains TFRecord itself can cause a wrong result, which the reader of the preceding part detects.
    """
    raw.seek(0, 2)
    size = raw.tell()  # HDFS's files return nothing from `seek`
    reach = _FIRST_LOOK
    while at + HEAD + TAIL <= size:
        raw.seek(at)
        block = np.frombuffer(raw.read(reach) + bytes(8), np.uint8)
        # Most records are short: reading a megabyte for each boundary cost more than decoding.
        reach = min(4 * reach, BLOCK)
        places = np.arange(max(len(block) - 8 - HEAD + 1, 0))
        lengths = numbers(block, "<u8")[places]
        left = np.minimum(size - at - HEAD - TAIL - places, rules.max_record_bytes)
        places = places[(left >= 0) & (lengths <= np.maximum(left, 0).astype(np.uint64))]
        is_head = numbers(block, "<u4")[places + 8] == length_checksums(lengths[places])
        for place in places[is_head].tolist():
            if _has_checksum(raw, at + place, int(lengths[place])):
                return at + int(place)
        at += max(len(block) - 8 - HEAD + 1, 1)
    return size


def _has_checksum(raw: IO[bytes], at: int, length: int) -> bool:
    raw.seek(at + HEAD)
    body = raw.read(length + TAIL)
    return masked(crc32c(body[:length])) == int.from_bytes(body[length:], "little")


def _bad_seam(following: int, end: int) -> DataError:
    """Return the error for a part that does not end where the next one starts.

    The first part starts at a known byte. If each part ends where the next one starts, all of them are right.
    """
    return DataError(
        f"The file cannot be read in parts: a record appears to start at byte {following}, inside one that ends "
        f"at byte {end}. This happens when a record contains TFRecord itself.",
        fix='Read each file as a whole: .option("splitBytes", 0).',
    )
