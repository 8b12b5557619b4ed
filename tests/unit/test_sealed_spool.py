"""Spools that are encrypted on disk: nothing readable, every row at its place, damage noticed, memory bounded."""

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from emberflow._feed.arrays import KEY
from emberflow._feed.row_windows import group_columns
from emberflow._feed.shards import merge_shards
from emberflow._feed.spool import Spool, SpoolFile, SpoolWriter
from emberflow._feed.staged_rows import fetch_from
from emberflow._feed.tensor_columns import plan_columns
from emberflow._plan.steps import epoch_order
from emberflow._protocol.sealed import TAG
from emberflow._protocol.sealed_file import BLOCK, SealedWriter, open_sealed, sealed_size
from emberflow.errors import StorageError
from tests.leaks import descriptors_in

ROWS = 20_000
TEXT = "a secret that must not be read"


def write(folder: Path, *, encrypts: bool, rows: int = ROWS) -> SpoolFile:
    """Spool rows whose keys arrive in no order, in chunks of 1000 rows."""
    keys = np.random.default_rng(5).permutation(rows)
    with SpoolWriter(folder, chunk_bytes=1, encrypts=encrypts) as writer:
        for start in range(0, rows, 1000):
            some = keys[start : start + 1000]
            columns = {KEY: some, "x": some * 10, "unread": some, "text": [f"{TEXT} {key}" for key in some]}
            writer.write(pa.RecordBatch.from_pydict(columns))
        return writer.finish()


def content(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)


def groups_of(file: SpoolFile) -> Any:
    columns = plan_columns(merge_shards([file.facts]))
    return group_columns([columns["x"], columns["text"]])


def test_the_disk_holds_nothing_readable_and_the_plain_file_does(tmp_path: Path) -> None:
    plain, sealed = write(tmp_path, encrypts=False), write(tmp_path, encrypts=True)
    assert str(tmp_path) in str(Path(f"/proc/self/fd/{sealed.fd}").readlink())
    assert list(tmp_path.iterdir()) == []
    assert content(plain.fd).count(TEXT.encode()) == ROWS
    there = content(sealed.fd)
    for word in (TEXT.encode(), TEXT.encode()[:8], b"ARROW1", b"unread", sealed.key):
        assert word is not None
        assert word not in there
    assert len(there) == sealed_size(sealed.facts.bytes)
    assert sealed.facts == replace(plain.facts, bytes=sealed.facts.bytes)
    assert str(sealed.key) not in repr(sealed)
    for file in (plain, sealed):
        file.close()


@pytest.mark.parametrize("memory", [1 << 30, 100_000, 1])
@pytest.mark.parametrize("shuffle", [True, False])
def test_epochs_have_the_rows_and_the_order_of_the_plain_spool(
    tmp_path: Path, memory: int, shuffle: bool
) -> None:
    plain, sealed = write(tmp_path, encrypts=False), write(tmp_path, encrypts=True)
    groups = groups_of(plain)
    fetches = [fetch_from(Spool(plain), groups), fetch_from(Spool(sealed, memory=memory), groups)]
    for file in (plain, sealed):
        file.close()
    for epoch in range(2):
        order = epoch_order(ROWS, seed=3, epoch=epoch, rank=0) if shuffle else np.arange(ROWS)
        seen = []
        for start in range(0, ROWS, 1700 if memory > 1 else 5_000):
            stop = min(start + (1700 if memory > 1 else 5_000), ROWS)
            one, other = (fetch(order, start, stop) for fetch in fetches)
            assert (one[0] == other[0]).all()
            assert (one[1] == other[1]).all()
            seen += other[0][0].tolist()
        assert sorted(seen) == [10 * key for key in range(ROWS)]


def test_a_part_of_an_epoch_and_two_orders_in_turn(tmp_path: Path) -> None:
    file = write(tmp_path, encrypts=True, rows=3000)
    fetch = fetch_from(Spool(file, memory=20_000), groups_of(file))
    file.close()
    orders = [np.random.default_rng(seed).permutation(3000) for seed in (1, 2)]
    for start in (2500, 100, 0, 2999):
        for order in orders:
            rows = fetch(order, start, min(start + 30, 3000))[0][0]
            assert rows.tolist() == [10 * key for key in order[start : start + 30]]
    assert fetch(orders[0], 7, 7)[0].shape == (1, 0)


def test_a_stage_decrypts_a_chunk_once_and_no_other_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from emberflow._protocol import sealed_file

    file = write(tmp_path, encrypts=True)
    columns = plan_columns(merge_shards([file.facts]))
    spool = Spool(file, memory=ROWS * 60 // 4)
    opened: list[int] = []
    real = sealed_file._SealedBlocks._open_block

    def counted(self: Any, number: int, into: memoryview) -> None:
        opened.append(number)
        real(self, number, into)

    assert not spool.is_held
    fetch = fetch_from(spool, group_columns([columns["x"]]))
    monkeypatch.setattr(sealed_file._SealedBlocks, "_open_block", counted)
    order = np.random.default_rng(0).permutation(ROWS)
    windows = 40
    for start in range(0, ROWS, ROWS // windows):
        fetch(order, start, start + ROWS // windows)
    blocks = -(-file.facts.bytes // BLOCK)
    # Four or five stages, each reads one eighth of the bytes of 20 chunks, and whole blocks.
    assert len(opened) <= 6 * 2 * 20 < windows * blocks
    file.close()


def read_all(file: SpoolFile, memory: int) -> None:
    fetch_from(Spool(file, name="validation", memory=memory), groups_of(file))(np.arange(ROWS), 0, ROWS)


def change(fd: int, at: int) -> None:
    os.pwrite(fd, bytes([os.pread(fd, 1, at)[0] ^ 1]), at)


@pytest.mark.parametrize("memory", [1 << 30, 1])
@pytest.mark.parametrize("at", [0, BLOCK + TAG + 5, -1])
def test_a_changed_byte_is_an_error_that_names_the_spool(tmp_path: Path, at: int, memory: int) -> None:
    file = write(tmp_path, encrypts=True)
    change(file.fd, at % sealed_size(file.facts.bytes))
    with pytest.raises(
        StorageError, match=r"^The spool of 'validation' must be read as it was written"
    ) as caught:
        read_all(file, memory)
    assert "local disk" in caught.value.fix
    file.close()


def test_blocks_that_changed_places_are_an_error(tmp_path: Path) -> None:
    file = write(tmp_path, encrypts=True)
    size = BLOCK + TAG
    one, other = os.pread(file.fd, size, 0), os.pread(file.fd, size, size)
    os.pwrite(file.fd, other + one, 0)
    with pytest.raises(StorageError, match="must be read as it was written"):
        Spool(file)
    file.close()


@pytest.mark.parametrize("cut", [1, TAG, BLOCK + TAG, -5])
def test_a_file_of_another_size_is_an_error(tmp_path: Path, cut: int) -> None:
    file = write(tmp_path, encrypts=True)
    os.ftruncate(file.fd, os.fstat(file.fd).st_size - cut)
    with pytest.raises(StorageError, match="The spool of 'train' must be complete"):
        Spool(file)
    file.close()


def test_a_block_of_another_spool_is_an_error(tmp_path: Path) -> None:
    one, other = write(tmp_path, encrypts=True), write(tmp_path, encrypts=True)
    assert one.key != other.key
    os.pwrite(one.fd, os.pread(other.fd, BLOCK + TAG, 0), 0)
    with pytest.raises(StorageError, match="block 1 of"):
        Spool(one)
    for file in (one, other):
        file.close()


def test_rows_without_keys_and_no_rows_at_all(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path, encrypts=True, chunk_bytes=1) as writer:
        writer.write(pa.RecordBatch.from_pydict({"s": ["a", "bc"], "x": [1, 2]}))
        writer.write(pa.RecordBatch.from_pydict({"s": ["d"], "x": [3]}))
        file = writer.finish()
    for memory in (1 << 30, 1):
        spool = Spool(file, memory=memory)
        assert spool.starts.tolist() == [0, 2, 3]
        assert [batch.to_pydict()["x"] for batch in spool.batches()] == [[1, 2], [3]]
    file.close()
    with SpoolWriter(tmp_path, encrypts=True) as writer:
        nothing = writer.finish()
    assert Spool(nothing).rows == 0
    nothing.close()


def test_an_abandoned_writer_writes_nothing_more(tmp_path: Path) -> None:
    with SpoolWriter(tmp_path, chunk_bytes=1, encrypts=True) as writer:
        writer.write(pa.RecordBatch.from_pydict({"x": [1]}))
        assert descriptors_in(tmp_path) == 1
    assert descriptors_in(tmp_path) == 0
    with (tmp_path / "next").open("w+b") as file:  # it may have the number of the writer's descriptor
        del writer
        assert os.fstat(file.fileno()).st_size == 0


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
def test_any_size_and_any_position(tmp_path: Path, size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    with (tmp_path / "file").open("w+b") as file:
        writer = SealedWriter(file.fileno())
        for start in range(0, size, 70_000):
            writer.write(data[start : start + 70_000])
        assert writer.tell() == size
        writer.finish()
        reader = open_sealed(file.fileno(), writer.key, size, "It")
    with reader:
        assert reader.read() == data
        for at in {0, size // 2, max(0, size - 1), size, BLOCK}:
            reader.seek(at)
            assert reader.read(BLOCK + 3) == data[at : at + BLOCK + 3]


def test_a_value_can_be_pickled_into_it(tmp_path: Path) -> None:
    value = {"a": list(range(100_000)), "b": np.arange(1 << 17)}
    with (tmp_path / "file").open("w+b") as file:
        writer = SealedWriter(file.fileno())
        pickle.dump(value, writer)
        writer.finish()
        with open_sealed(file.fileno(), writer.key, writer.tell(), "It") as reader:
            again = pickle.load(reader)
    assert again["a"] == value["a"]
    assert (again["b"] == value["b"]).all()


def test_a_shard_larger_than_its_memory_is_read_in_bounded_memory(tmp_path: Path) -> None:
    """Write and shuffle 400 MB, of which 64 MB may be held decrypted, in a process that grows by less than 270 MB."""
    done = subprocess.run([sys.executable, "-c", _LARGE, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    held, grown = map(int, done.stdout.split())
    assert held > 400 << 20
    assert grown < 270 << 20


_LARGE = """
import sys
import numpy as np, pyarrow as pa
from emberflow._feed.arrays import KEY
from emberflow._feed.tensor_columns import plan_columns
from emberflow._feed.row_windows import group_columns, window_rows
from emberflow._feed.shards import merge_shards
from emberflow._feed.spool import Spool, SpoolWriter
from emberflow._feed.staged_rows import fetch_from

def own_memory():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("Anonymous:"))

def make(start):
    flat = pa.array(np.full(1000 * 784, start, np.float32))
    lists = pa.ListArray.from_arrays(np.arange(1001, dtype=np.int32) * 784, flat)
    return pa.RecordBatch.from_arrays([pa.array(np.arange(start, start + 1000)[::-1]), lists], [KEY, "x"])

make(0); before = own_memory(); peak = 0
with SpoolWriter(sys.argv[1], encrypts=True) as writer:
    for number in range(140):
        writer.write(make(number * 1000)); peak = max(peak, own_memory())
    file = writer.finish()
spool = Spool(file, memory=64 << 20)
columns = list(plan_columns(merge_shards([file.facts])).values())
fetch, rows = fetch_from(spool, group_columns(columns)), window_rows(spool, columns)
order = np.random.default_rng(0).permutation(spool.rows)
for start in range(0, spool.rows, rows):
    stop = min(start + rows, spool.rows)
    (values,) = fetch(order, start, stop)
    assert (values[:, 783] == order[start:stop] // 1000 * 1000).all()
    peak = max(peak, own_memory())
print(file.facts.bytes, peak - before)
"""
