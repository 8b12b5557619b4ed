"""TFRecord files: opened through the storage layer, inflated or deflated, whole or from the middle."""

import os
import zlib
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
from emberflow.tfrecord.options import SUFFIXES, Compression

_WINDOW_BITS: dict[Compression, int] = {"gzip": 31, "zlib": 15}
_BLOCK = 1 << 20
_FIRST_LOOK = 8 << 10


class Inflated:
    """A stream that inflates another one; memory stays bounded however far the content expands."""

    def __init__(self, raw: IO[bytes], compression: Compression) -> None:
        self.fault = ""
        """Why the stream ended before its end, or nothing."""
        self._raw = raw
        self._bits = _WINDOW_BITS[compression]
        self._inflate = zlib.decompressobj(self._bits)
        self._waiting = b""
        self._has_begun = False

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes, and nothing at the end or at a fault."""
        while not self.fault:
            if not self._waiting:
                self._waiting = self._raw.read(_BLOCK)
            if not self._waiting:
                if self._has_begun and not self._inflate.eof:
                    self.fault = "its compressed content is cut short"
                return b""
            if self._inflate.eof:  # gzip files may be joined end to end
                self._inflate = zlib.decompressobj(self._bits)
            try:
                out = self._inflate.decompress(self._waiting, size)
            except zlib.error as error:
                self.fault = f"its compressed content is broken ({error})"
                return b""
            self._has_begun = True
            self._waiting = self._inflate.unconsumed_tail or self._inflate.unused_data
            if out:
                return out
        return b""


class Deflated:
    """A stream that deflates what is written into another one."""

    def __init__(self, raw: IO[bytes], compression: Compression, level: int) -> None:
        self._raw = raw
        self._deflate = zlib.compressobj(level, wbits=_WINDOW_BITS[compression])

    def write(self, data: Any) -> None:
        """Write some bytes."""
        self._raw.write(self._deflate.compress(data))

    def finish(self) -> None:
        """Write the end of the compressed content."""
        self._raw.write(self._deflate.flush())


def compression_of(path: str, asked: Compression | None) -> Compression:
    """Return how a file is compressed: as asked, else by its ending.

    >>> compression_of("part-0.tfrecord.gz", None), compression_of("part-0.tfrecord.gz", "none")
    ('gzip', 'none')
    """
    if asked is not None:
        return asked
    ending = path.rsplit(".", 1)[-1].lower()
    by_ending: dict[str, Compression] = {
        "gz": "gzip",
        "gzip": "gzip",
        "deflate": "zlib",
        "zlib": "zlib",
        "zz": "zlib",
    }
    return by_ending.get(ending, "none")


@contextmanager
def writing(path: str, compression: Compression, level: int = -1) -> Iterator[Any]:
    """Open a file for records; the block gets something with `write`."""
    with storage.open_file(path, "wb") as raw:
        if compression == "none":
            yield raw
        else:
            deflated = Deflated(raw, compression, level)
            yield deflated
            deflated.finish()
        if storage.is_local(path):  # else a power cut may leave a published file empty
            raw.flush()
            os.fsync(raw.fileno())


def read_file(
    path: str, compression: Compression, rules: FrameRules, start: int = 0, stop: int | None = None
) -> Iterator[Chunk]:
    """Read the records of a file, or those that start from byte `start` up to byte `stop` of it."""
    with storage.open_file(path) as raw:
        if compression != "none":
            yield from read_chunks(Inflated(raw, compression), rules)
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
    """Return where the first record at or after a byte starts: where both checksums are right.

    The checksum of the length finds candidates, that of the payload confirms one. Only a file that has TFRecord
    inside a record can mislead this, and the reader of the part before finds that out.
    """
    size = raw.seek(0, 2)
    reach = _FIRST_LOOK
    while at + HEAD + TAIL <= size:
        raw.seek(at)
        block = np.frombuffer(raw.read(reach) + bytes(8), np.uint8)
        # Most records are short: a megabyte for each seam cost more than decoding.
        reach = min(4 * reach, _BLOCK)
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

    The first part starts at a known place. If each part ends where the next one starts, all of them are right.
    """
    return DataError(
        f"The file cannot be read in parts: a record seems to start at byte {following}, inside one that ends "
        f"at byte {end}. This happens when a record contains TFRecord itself.",
        fix='Read each file as a whole: .option("splitBytes", 0).',
    )


def suffix_of(compression: Compression) -> str:
    """Return the ending of a file's name."""
    return ".tfrecord" + SUFFIXES[compression]
