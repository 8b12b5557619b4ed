import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberflow._feed.arrays import KEY
from emberflow._feed.digest import add_digests, digest_of
from emberflow._feed.row_windows import group_columns
from emberflow._feed.shard_facts import ShardFacts
from emberflow._feed.shards import merge_shards
from emberflow._feed.spool import Spool, SpoolFile, SpoolWriter
from emberflow._feed.staged_rows import fetch_from
from emberflow._feed.tensor_columns import plan_columns
from emberflow.errors import DataError, StorageError
from tests.leaks import descriptors_in


def batch_of(keys: list[int]) -> Any:
    return pa.RecordBatch.from_pydict(
        {KEY: pa.array(keys, pa.int64()), "x": pa.array([key * 10 for key in keys], pa.int64())}
    )


def spool_of(folder: Path, batches: list[Any], **options: Any) -> SpoolFile:
    with SpoolWriter(folder, **options) as writer:
        for batch in batches:
            writer.write(batch)
        return writer.finish()


def test_rows_come_back_in_the_order_of_their_keys(tmp_path: Path) -> None:
    file = spool_of(tmp_path, [batch_of([5, 3]), batch_of([]), batch_of([9, 0, 4])], chunk_bytes=1)
    spool = Spool(file)
    file.close()
    fetch = fetch_from(spool, group_columns(list(plan_columns(merge_shards([file.facts])).values())))
    assert fetch(np.arange(5), 0, 5)[0].tolist() == [[0, 30, 40, 50, 90]]
    assert fetch(np.array([4, 0, 2, 1]), 0, 3)[0].tolist() == [[90, 0, 40]]
    assert [batch.to_pydict() for batch in spool.batches()] == [{"x": [50, 30]}, {"x": [90, 0, 40]}]
    assert (spool.rows, len(spool.chunks)) == (5, 2)


def test_small_batches_become_few_chunks(tmp_path: Path) -> None:
    file = spool_of(tmp_path, [batch_of([key]) for key in range(100)])
    assert len(Spool(file).chunks) == 1
    file.close()


def test_wide_rows_are_written_as_they_come(tmp_path: Path) -> None:
    batches = [
        pa.RecordBatch.from_pydict({KEY: [2 * number, 2 * number + 1], "x": [bytes(20_000)] * 2})
        for number in range(3)
    ]
    with SpoolWriter(tmp_path) as writer:
        for batch in batches:
            writer.write(batch)
        file = writer.finish()
    assert [chunk.num_rows for chunk in Spool(file).chunks] == [2, 2, 2]
    file.close()


@settings(deadline=None)  # the first call imports parts of pyarrow
@given(keys=st.permutations(range(12)), cuts=st.lists(st.integers(0, 12), max_size=4))
def test_the_digest_knows_no_order_and_no_batches(keys: list[int], cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), 12]
    texts = [f"text {'x' * key}" if key % 3 else "" for key in keys]
    lists = [list(range(key % 4)) for key in keys]
    whole = pa.RecordBatch.from_pydict({KEY: keys, "s": texts, "l": lists, "f": [key / 7 for key in keys]})
    total = 0
    for start, stop in pairwise(edges):
        total = add_digests(total, digest_of(whole.slice(start, stop - start)))
    assert total == digest_of(whole.take(pa.array(np.argsort(keys))))


@pytest.mark.parametrize(
    ("column", "other"),
    [
        (pa.array([1.0, 2.0]), pa.array([1.0, -2.0])),
        (pa.array([True, False]), pa.array([True, True])),
        (pa.array(["ab", "c"]), pa.array(["a", "bc"])),
        (pa.array([[1], [2, 3]]), pa.array([[1, 2], [3]])),
        (pa.array([0, 1]), pa.array([None, 1], pa.int64())),
        (pa.array([["a"], ["b"]]), pa.array([["a"], ["c"]])),
        (pa.array([{"a": 1}, {"a": 2}]), pa.array([{"a": 1}, {"a": 3}])),
        (pa.array([1, 2]), pa.array([2, 1])),
    ],
)
def test_the_digest_sees_a_change(column: Any, other: Any) -> None:
    keys = pa.array([0, 1])
    one = pa.RecordBatch.from_arrays([keys, column], [KEY, "c"])
    two = pa.RecordBatch.from_arrays([keys, other], [KEY, "c"])
    assert digest_of(one) != digest_of(two)


def test_nothing_is_in_the_folder_at_any_time(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    with SpoolWriter(folder, chunk_bytes=1) as writer:
        writer.write(batch_of([1]))
        assert list(folder.iterdir()) == []
        assert folder.stat().st_mode & 0o777 == 0o700
        file = writer.finish()
    assert os.fstat(file.fd).st_mode & 0o777 == 0o600
    file.close()


def test_an_abandoned_writer_leaves_no_descriptor(tmp_path: Path) -> None:
    for _ in range(3):
        with SpoolWriter(tmp_path, chunk_bytes=1) as writer:
            writer.write(batch_of([1]))
            assert descriptors_in(tmp_path) == 1
    assert descriptors_in(tmp_path) == 0


def test_the_limit_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    batches = [batch_of(list(range(start * 100, start * 100 + 100))) for start in range(100)]
    with pytest.raises(DataError, match="5000 bytes") as caught:
        spool_of(tmp_path, batches, limit=5000, chunk_bytes=1)
    assert "cache=False" in caught.value.fix


def test_a_full_disk_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    # A limit on file sizes stands in for a full disk: the same refusal of the same write.
    code = (
        "import resource, sys\n"
        "import pyarrow as pa\n"
        "from emberflow._feed.spool import SpoolWriter\n"
        "from emberflow.errors import DataError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))\n"
        "try:\n"
        "    with SpoolWriter(sys.argv[1], chunk_bytes=1) as writer:\n"
        "        for _ in range(50): writer.write(pa.RecordBatch.from_pydict({'x': list(range(1000))}))\n"
        "except DataError as error: print(error.problem, error.fix)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert "File too large after" in done.stdout
    assert "spool_dir=" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_a_storage_error() -> None:
    with pytest.raises(StorageError, match="/proc/none"):
        SpoolWriter("/proc/none")


@pytest.mark.parametrize("kept", [0, 10, 300, -8])
def test_a_file_that_was_cut_off_is_an_error(tmp_path: Path, kept: int) -> None:
    file = spool_of(tmp_path, [batch_of([1, 2])])
    os.ftruncate(file.fd, kept if kept >= 0 else file.facts.bytes + kept)
    with pytest.raises(DataError, match="must be complete"):
        Spool(file)
    file.close()


def test_a_file_with_a_broken_end_is_an_error(tmp_path: Path) -> None:
    file = spool_of(tmp_path, [batch_of([1, 2])])
    os.pwrite(file.fd, b"\0" * 10, file.facts.bytes - 10)
    with pytest.raises(DataError, match="must be complete"):
        Spool(file)
    file.close()


def test_a_row_that_came_twice_is_an_error(tmp_path: Path) -> None:
    file = spool_of(tmp_path, [batch_of([1, 2]), batch_of([2])])
    with pytest.raises(DataError, match="two rows with one key"):
        Spool(file)
    file.close()


def test_facts_survive_json(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pydict({KEY: [1, 2], "l": [[1, 2], None], "b": [b"abc", b""]})
    file = spool_of(tmp_path, [batch])
    file.close()
    again = ShardFacts.from_json(file.facts.to_json())
    assert again == file.facts
    assert (again.columns["l"].nulls, again.columns["l"].lengths) == (1, ((2, 2),))
    assert again.columns["b"].lengths == ((0, 3),)
    assert ShardFacts.from_json(ShardFacts().to_json()) == ShardFacts()


def test_a_shard_larger_than_the_memory_it_may_take(tmp_path: Path) -> None:
    """Write and shuffle 400 MB in a process that may hold 180 MB of its own beyond what it starts with."""
    done = subprocess.run([sys.executable, "-c", _LARGE, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    held, grown = map(int, done.stdout.split())
    assert held > 400 << 20
    assert grown < 180 << 20


_LARGE = """
import sys
import numpy as np, pyarrow as pa
from emberflow._feed.arrays import KEY
from emberflow._feed.tensor_columns import plan_columns
from emberflow._feed.row_windows import group_columns, window_rows
from emberflow._feed.staged_rows import fetch_from
from emberflow._feed.shards import merge_shards
from emberflow._feed.spool import Spool, SpoolWriter

def own_memory():  # what no file stands behind: pages of a mapped file can be dropped at any time
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("Anonymous:"))

def make(start):
    flat = pa.array(np.full(1000 * 784, start, np.float32))
    lists = pa.ListArray.from_arrays(np.arange(1001, dtype=np.int32) * 784, flat)
    return pa.RecordBatch.from_arrays([pa.array(np.arange(start, start + 1000)[::-1]), lists], [KEY, "x"])

make(0); before = own_memory(); peak = 0
with SpoolWriter(sys.argv[1]) as writer:
    for number in range(140):
        writer.write(make(number * 1000)); peak = max(peak, own_memory())
    file = writer.finish()
spool = Spool(file)
columns = list(plan_columns(merge_shards([file.facts])).values())
fetch, rows = fetch_from(spool, group_columns(columns)), window_rows(spool, columns)
order = np.random.default_rng(0).permutation(spool.rows)
for start in range(0, spool.rows, rows):
    (values,) = fetch(order, start, min(start + rows, spool.rows))
    assert (values[:, 783] == order[start:start + rows] // 1000 * 1000).all()
    peak = max(peak, own_memory())
print(file.facts.bytes, peak - before)
"""
