"""How TFRecord files are compressed: the registry of codecs and their streams.

A new codec is one entry of `CODECS`: the option's values, the file name's endings, and its two streams.
"""

import functools
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any, Protocol

BLOCK = 1 << 20
"""Bytes that are read from storage at a time: one request of an object store."""

_GZIP_BITS, _ZLIB_BITS = 31, 15  # zlib's largest window, with a gzip or a zlib header


class Reading(Protocol):
    """A stream of inflated bytes."""

    fault: str
    """Why the stream ended early; empty if it did not."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; empty at the end or at a fault."""


class Writing(Protocol):
    """A stream that deflates what is written."""

    def write(self, data: Any, /) -> object:
        """Write some bytes."""

    def finish(self) -> None:
        """Write the end of the compressed content."""


class ZlibReading:
    """Inflates gzip or zlib content; memory stays bounded however far the content expands."""

    def __init__(self, raw: IO[bytes], window_bits: int) -> None:
        self.fault = ""
        self._raw = raw
        self._bits = window_bits
        self._inflate = zlib.decompressobj(self._bits)
        self._waiting = b""
        self._has_begun = False

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes; empty at the end or at a fault."""
        while not self.fault:
            if not self._waiting:
                self._waiting = self._raw.read(BLOCK)
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


class ZlibWriting:
    """Deflates what is written as gzip or zlib content."""

    def __init__(self, raw: IO[bytes], level: int, window_bits: int) -> None:
        self._raw = raw
        self._deflate = zlib.compressobj(level, wbits=window_bits)

    def write(self, data: Any) -> None:
        """Write some bytes."""
        self._raw.write(self._deflate.compress(data))

    def finish(self) -> None:
        """Write the end of the compressed content."""
        self._raw.write(self._deflate.flush())


@dataclass(frozen=True, kw_only=True)
class Codec:
    """One kind of compression.

    Attributes:
        aliases: Further values of the option `compression`, in lower case.
        endings: Endings of file names that imply this codec; the first one is used for new files.
        reading: Makes the inflating stream of an open file; None where the file is not compressed.
        writing: Makes the deflating stream of an open file and a level; None where the file is not compressed.
    """

    aliases: tuple[str, ...] = ()
    endings: tuple[str, ...] = ()
    reading: Callable[[IO[bytes]], Reading] | None = None
    writing: Callable[[IO[bytes], int], Writing] | None = None

    @property
    def is_splittable(self) -> bool:
        """Whether a reader can start in the middle of a file."""
        return self.reading is None

    @property
    def suffix(self) -> str:
        """The end of a new file's name."""
        return ".tfrecord" + (f".{self.endings[0]}" if self.endings else "")


CODECS = {
    "none": Codec(aliases=("", "uncompressed")),
    "gzip": Codec(
        aliases=("org.apache.hadoop.io.compress.gzipcodec",),
        endings=("gz", "gzip"),
        reading=functools.partial(ZlibReading, window_bits=_GZIP_BITS),
        writing=functools.partial(ZlibWriting, window_bits=_GZIP_BITS),
    ),
    "zlib": Codec(
        aliases=(
            "deflate",
            "org.apache.hadoop.io.compress.defaultcodec",
            "org.apache.hadoop.io.compress.deflatecodec",
        ),
        endings=("deflate", "zlib", "zz"),
        reading=functools.partial(ZlibReading, window_bits=_ZLIB_BITS),
        writing=functools.partial(ZlibWriting, window_bits=_ZLIB_BITS),
    ),
}


def codec_named(name: str) -> Codec | None:
    """Return the codec of a value of the option `compression`, or None.

    >>> codec_named("DEFLATE").suffix
    '.tfrecord.deflate'
    """
    lower = name.lower()
    by_alias = (codec for codec in CODECS.values() if lower in codec.aliases)
    return CODECS.get(lower) or next(by_alias, None)


def codec_of(path: str, chosen: Codec | None) -> Codec:
    """Return the codec of a file: the chosen one, otherwise by the name's ending.

    >>> codec_of("part-0.tfrecord.gz", None).suffix, codec_of("part-0.tfrecord.gz", CODECS["none"]).suffix
    ('.tfrecord.gz', '.tfrecord')
    """
    if chosen is not None:
        return chosen
    ending = path.rsplit(".", 1)[-1].lower()
    by_ending = (codec for codec in CODECS.values() if ending in codec.endings)
    return next(by_ending, CODECS["none"])
