"""The file of a plain spool: record batches in pieces, which the kernel copies from Arrow's buffers as they came.

A column whose rows all have one width is written without its offsets, at a multiple of that width. So the mapped file
itself, seen as a matrix of rows of that width, has all rows of the column at known places, whatever their chunk: one
`np.take` gathers them. Other columns of a chunk are an Arrow stream. At the end is an index.
"""

import base64
import json
import mmap
import os
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from emberflow._feed.arrays import is_list, offsets_of
from emberflow.errors import DataError

Lengths = tuple[int, ...]

_END = struct.Struct("<Q8s")  # bytes of the index, and a mark
_MARK = b"emberflw"
_ALIGNMENT = 64  # of Arrow streams


@dataclass(frozen=True, kw_only=True)
class Piece:
    """The rows of one column in one record batch, all of one width.

    Attributes:
        buffer: Their bytes.
        width: Bytes of a row.
        lengths: Elements of a row at each level of lists; of a binary value its bytes.
    """

    buffer: Any
    width: int
    lengths: Lengths


def piece_of_width(array: Any) -> Piece | None:
    """Return a column's rows if all have one width and none is null, zero copy; else None."""
    rows, lengths = len(array), []
    while _has_offsets(array.type) and not array.null_count:
        offsets = offsets_of(array)
        sizes = np.diff(offsets)
        if not len(sizes) or not sizes[0] or (sizes != sizes[0]).any():
            return None
        lengths.append(int(sizes[0]))
        if not is_list(array.type):
            start, stop = int(offsets[0]), int(offsets[-1])
            buffer = array.buffers()[2].slice(start, stop - start)
            return Piece(buffer=buffer, width=buffer.size // rows, lengths=tuple(lengths))
        array = array.flatten()
    if array.null_count or not rows or not _is_word(array.type):
        return None
    width = array.type.bit_width // 8
    buffer = array.buffers()[1].slice(array.offset * width, len(array) * width)
    return Piece(buffer=buffer, width=buffer.size // rows, lengths=tuple(lengths))


def _has_offsets(kind: Any) -> bool:
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_list(kind)
        or types.is_large_list(kind)
    )


def _is_word(kind: Any) -> bool:
    return bool(pa.types.is_primitive(kind) and not pa.types.is_boolean(kind))


def all_in_pieces(batch: Any) -> bool:
    """Tell whether every column of a batch is a piece: then small chunks are read as fast as large ones."""
    return all(piece_of_width(column) is not None for column in batch.columns)


class PieceWriter:
    """Writes record batches of one schema to a file.

    Attributes:
        key: None: it is not encrypted.
        written: Bytes written; the file may be longer, it has holes.
    """

    key = None

    def __init__(self, fd: int) -> None:
        self.written = 0
        self._fd = fd
        self._end = 0
        self._schema: Any = None
        self._chunks: list[Any] = []

    def write(self, batch: Any) -> None:
        """Write a record batch as one chunk."""
        self._schema = batch.schema
        places, others = [], []
        for number, column in enumerate(batch.columns):
            piece = piece_of_width(column)
            if piece is None:
                others.append(number)
            else:
                self._align(piece.width)
                places.append([number, self._end, piece.lengths])
                self.put(piece.buffer)
        stream = self._put_stream(batch.select(others)) if others else [0, 0]
        self._chunks.append([batch.num_rows, places, others, stream])

    def finish(self) -> int:
        """Write the index; return the size of the file."""
        schema = None if self._schema is None else base64.b64encode(self._schema.serialize()).decode()
        index = json.dumps([schema, self._chunks], separators=(",", ":")).encode()
        self.put(index + _END.pack(len(index), _MARK))
        return self._end

    def put(self, data: Any) -> None:
        """Write bytes at the end."""
        left = memoryview(data).cast("B")
        while len(left):
            count = os.pwrite(self._fd, left, self._end)
            self._end += count
            self.written += count
            left = left[count:]

    def _align(self, width: int) -> None:
        self._end += -self._end % width  # a hole: it takes no space on disk

    def _put_stream(self, batch: Any) -> list[int]:
        self._align(_ALIGNMENT)
        start = self._end
        with pa.ipc.new_stream(pa.PythonFile(_Sink(self), "w"), batch.schema) as writer:
            writer.write_batch(batch)
        return [start, self._end - start]


class _Sink:
    """What Arrow's writer asks of a file."""

    closed = False

    def __init__(self, pieces: PieceWriter) -> None:
        self.write = pieces.put

    def flush(self) -> None:
        """Do nothing: nothing is held back."""

    def close(self) -> None:
        """Do nothing: the file goes on."""


def mapped_chunks(fd: int, size: int) -> tuple[list[Any], NDArray[np.uint8]]:
    """Return the record batches of a file of `size` bytes, zero copy, and the bytes of the whole file."""
    found = os.fstat(fd).st_size
    if found < size:  # reading past the end of a mapped file would kill the process
        raise cut_off(f"{found} of {size} bytes")
    buffer = pa.py_buffer(mmap.mmap(fd, size, access=mmap.ACCESS_READ))
    try:
        schema, chunks = _read_index(buffer)
        return [_read_chunk(buffer, schema, *chunk) for chunk in chunks], np.frombuffer(buffer, np.uint8)
    except (pa.ArrowInvalid, OSError, ValueError, struct.error) as error:
        raise cut_off(str(error)) from error


def _read_index(buffer: Any) -> tuple[Any, list[Any]]:
    length, mark = _END.unpack(buffer.slice(buffer.size - _END.size))
    if mark != _MARK:
        raise ValueError("its end is missing")
    encoded, chunks = json.loads(bytes(buffer.slice(buffer.size - _END.size - length, length)))
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(encoded))), chunks


def _read_chunk(
    buffer: Any, schema: Any, rows: int, places: list[Any], others: list[int], stream: list[int]
) -> Any:
    arrays: list[Any] = [None] * len(schema)
    for number, start, lengths in places:
        arrays[number] = _array_of(schema.field(number).type, rows, tuple(lengths), buffer.slice(start))
    if others:
        batch = pa.ipc.open_stream(buffer.slice(*stream)).read_next_batch()
        for number, array in zip(others, batch.columns, strict=True):
            arrays[number] = array
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array_of(kind: Any, rows: int, lengths: Lengths, buffer: Any) -> Any:
    """Return the array of so many rows at the beginning of a buffer."""
    if not lengths:
        return pa.Array.from_buffers(kind, rows, [None, buffer.slice(0, rows * kind.bit_width // 8)])
    is_large = pa.types.is_large_list(kind) or pa.types.is_large_binary(kind)
    offsets = _offsets(rows, lengths[0], is_large)
    if not is_list(kind):
        return pa.Array.from_buffers(kind, rows, [None, offsets, buffer.slice(0, rows * lengths[0])])
    values = _array_of(kind.value_type, rows * lengths[0], lengths[1:], buffer)
    return pa.Array.from_buffers(kind, rows, [None, offsets], children=[values])


@lru_cache(maxsize=8)
def _offsets(rows: int, length: int, is_large: bool) -> Any:
    """Return Arrow's offsets of rows of one length; most chunks of a file have as many rows."""
    return pa.py_buffer(np.arange(rows + 1, dtype=np.int64 if is_large else np.int32) * length)


def cut_off(what: str) -> DataError:
    """Return the error of a spool that is not complete."""
    return DataError(
        f"The spool must be complete. Received: {what}.",
        fix="Check the local disk of this executor for errors, then run again.",
    )
