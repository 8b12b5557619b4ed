"""The file of a plain spool: any record batch comes back, and rows of one width lie in it as a matrix."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from emberflow._feed import row_windows
from emberflow._feed.arrays import KEY
from emberflow._feed.row_windows import group_columns
from emberflow._feed.shards import merge_shards
from emberflow._feed.spool import PIECE_BYTES, Spool, SpoolFile, SpoolWriter
from emberflow._feed.spool_pieces import PieceWriter, mapped_chunks, piece_of_width
from emberflow._feed.staged_rows import fetch_from
from emberflow._feed.tensor_columns import ColumnOptions, plan_columns

BATCHES = {
    "numbers": {"x": pa.array([1, 2, 3], pa.int16()), "y": pa.array([0.5, 1.5, 2.5], pa.float32())},
    "times": {"x": pa.array([1, 2, 3], pa.timestamp("us", "UTC")), "y": pa.array([4, 5, 6], pa.date32())},
    "flags": {"x": pa.array([True, False, True]), "y": pa.array([1, 2, 3])},
    "nulls": {"x": pa.array([1, None, 3]), "y": pa.array([[1], None, [2]])},
    "nothing": {"x": pa.nulls(3), "y": pa.array([b"", b"", b""])},
    "bytes of one length": {"x": pa.array([b"abc", b"def", b"ghi"])},
    "large bytes": {"x": pa.array([b"abcd", b"defg", b"ghij"], pa.large_binary())},
    "bytes of any length": {"x": pa.array([b"abc", b"", b"ghijk"])},
    "lists of one length": {"x": pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], pa.list_(pa.float32()))},
    "lists of lists": {"x": pa.array([[[1, 2], [3, 4]]] * 3, pa.large_list(pa.list_(pa.int8())))},
    "lists with nulls": {"x": pa.array([[1, None], [3, 4], [5, 6]])},
    "lists of bytes": {"x": pa.array([[b"ab", b"cd"], [b"ef", b"gh"], [b"ij", b"kl"]])},
    "texts": {"x": pa.array(["one", "two", "six"]), "y": pa.array(["a", None, "ccc"])},
    "structs": {"x": pa.array([{"a": 1, "b": "c"}] * 3), "y": pa.array([1, 2, 3])},
    "decimals": {"x": pa.array([1, 2, 3], pa.decimal128(20, 2))},
    "dictionaries": {"x": pa.array(["a", "b", "a"]).dictionary_encode()},
}


def batch_of(start: int, rows: int, width: int) -> Any:
    values = np.arange(start, start + rows).astype(np.uint8)[:, np.newaxis] + np.zeros(width, np.uint8)
    keys = pa.array(np.arange(start, start + rows)[::-1])
    return pa.RecordBatch.from_pydict({KEY: keys, "x": pa.array([row.tobytes() for row in values])})


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    number = os.open(tmp_path / "pieces", os.O_RDWR | os.O_CREAT)
    yield number
    os.close(number)


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("start", [0, 1])
def test_every_kind_of_column_comes_back(fd: int, name: str, start: int) -> None:
    batch = pa.RecordBatch.from_pydict(BATCHES[name]).slice(start)
    writer = PieceWriter(fd)
    writer.write(batch)
    writer.write(batch.slice(1))
    chunks, _ = mapped_chunks(fd, writer.finish())
    for chunk, wanted in zip(chunks, (batch, batch.slice(1)), strict=True):
        chunk.validate(full=True)
        assert chunk.schema == wanted.schema
        assert chunk.to_pylist() == wanted.to_pylist()


def test_a_piece_is_the_memory_that_came() -> None:
    array = pa.array([b"abc", b"def", b"ghi"]).slice(1)
    piece = piece_of_width(array)
    assert piece is not None
    assert (piece.width, piece.lengths, bytes(piece.buffer)) == (3, (3,), b"defghi")
    assert piece.buffer.address == array.buffers()[2].address + 3


def write(folder: Path, batches: list[Any]) -> SpoolFile:
    with SpoolWriter(folder) as writer:
        for batch in batches:
            writer.write(batch)
        return writer.finish()


@pytest.mark.parametrize("width", [1000, 100_001])
def test_rows_of_one_width_are_taken_from_the_file_at_once(
    tmp_path: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of other sizes, of which no chunk begins where the one before it would let it."""
    rows = [PIECE_BYTES // width + 1 + number for number in range(4)]
    starts = np.cumsum([0, *rows])
    batches = [batch_of(int(start), count, width) for start, count in zip(starts[:-1], rows, strict=True)]
    file = write(tmp_path, batches)
    spool = Spool(file)
    file.close()
    assert [chunk.num_rows for chunk in spool.chunks] == rows
    columns = list(plan_columns(merge_shards([file.facts]), ColumnOptions(dtypes={"x": "uint8"})).values())
    fetch = fetch_from(spool, group_columns(columns))
    takes = []
    take = np.take
    monkeypatch.setattr(row_windows.np, "take", lambda *args, **more: takes.append(1) or take(*args, **more))
    order = np.random.default_rng(0).permutation(spool.rows)
    (values,) = fetch(order, 0, spool.rows)
    assert len(takes) == 1
    place_of_key = np.argsort(np.concatenate([batch.column(KEY) for batch in batches]))
    assert (values == (place_of_key[order] % 256).astype(np.uint8)[:, np.newaxis]).all()


def test_holes_count_neither_as_written_nor_on_disk(tmp_path: Path) -> None:
    wide = [batch_of(number, 1, 3 << 20) for number in range(4)]
    with SpoolWriter(tmp_path, limit=13 << 20) as writer:
        for batch in wide:
            writer.write(batch)
        file = writer.finish()
    assert file.facts.bytes > 20 << 20
    assert os.fstat(file.fd).st_blocks * 512 < 14 << 20
    assert [bytes(chunk.column("x")[0].as_py()[:1]) for chunk in Spool(file).chunks] == [
        b"\0",
        b"\1",
        b"\2",
        b"\3",
    ]
    file.close()
