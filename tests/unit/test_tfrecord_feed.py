"""TFRecord as a file source of a run: every record on exactly one rank, whatever the files."""

import gzip
import pickle
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from emberflow import storage
from emberflow._feed.arrays import KEY
from emberflow._feed.file_source import rank_batches
from emberflow.errors import ConfigError, DataError
from emberflow.tfrecord import tfrecords as feed
from emberflow.tfrecord.tfrecords import TFRecords
from tests.unit.test_tfrecord_reading import file_of, numbers


def shards(source: Any, ranks: int) -> list[list[int]]:
    source = pickle.loads(pickle.dumps(source))
    listed = source.fragments()
    return [
        [x for batch in rank_batches(source, rank, ranks, listed) for x in batch.column("x").to_pylist()]
        for rank in range(ranks)
    ]


@pytest.mark.parametrize("piece", [100, 1 << 20])
def test_ranks_share_counted_files_evenly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(feed, "_PIECE", piece)
    (tmp_path / "a.tfrecord").write_bytes(numbers(0, 70))
    (tmp_path / "b.tfrecord").write_bytes(numbers(70, 103))
    (tmp_path / "empty").write_bytes(b"")
    for ranks in (1, 2, 3, 7):
        parts = shards(TFRecords(str(tmp_path)), ranks)
        assert sorted(chain.from_iterable(parts)) == list(range(103))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("name", ["memory://tfrecord-feed/a.tfrecord", "a.tfrecord.gz"])
def test_files_that_are_not_counted_go_by_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(feed, "_PIECE", 500)
    path = name if "://" in name else str(tmp_path / name)
    data = numbers(0, 100)
    storage.write_bytes(path, gzip.compress(data) if name.endswith("gz") else data)
    assert {fragment.rows for fragment in TFRecords(path).fragments()} == {None}
    assert sorted(chain.from_iterable(shards(TFRecords(path), 3))) == list(range(100))


def test_keys_tell_the_place_of_each_row(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(numbers(0, 10))
    source = TFRecords(str(tmp_path / "a"))
    batches = [batch for rank in range(2) for batch in rank_batches(source, rank, 2)]
    rows = [
        (key, x)
        for batch in batches
        for key, x in zip(batch.column(KEY).to_pylist(), batch.column("x").to_pylist(), strict=True)
    ]
    assert rows == [(number, number) for number in range(10)]


def batch_of(path: Path, features: Any, **columns: Any) -> Any:
    path.write_bytes(file_of(pa.table(columns)))
    source = TFRecords(str(path), features=features)
    (piece,) = source.fragments()
    (batch,) = source.read(piece, 0, None)
    return batch


def test_features_by_name_and_type(tmp_path: Path) -> None:
    columns = {"x": [1, 2], "v": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32())), "s": ["a", "b"]}
    path = tmp_path / "f"
    assert batch_of(path, ["s", "x"], **columns).schema.names == ["s", "x"]
    batch = batch_of(path, {"v": "float[2]", "s": "bytes", "x": "int32"}, **columns)
    assert batch.schema.types == [pa.list_(pa.float32(), 2), pa.binary(), pa.int32()]
    assert batch.column("v").to_pylist() == [[1.0, 2.0], [3.0, 4.0]]
    assert batch_of(path, {"v": "double[]"}, **columns).schema.types == [pa.list_(pa.float64())]
    with pytest.raises(DataError, match="must have 3 values"):
        batch_of(path, {"v": "float[3]"}, **columns)
    with pytest.raises(ConfigError, match=r"Received: \['y'\]"):
        batch_of(path, ["y"], **columns)
    for wrong in ("float32x", "float[a]", "float[2", 3):
        with pytest.raises(ConfigError, match=r"Received: features\['v'\]"):
            TFRecords(str(path), features={"v": wrong})
    with pytest.raises(ConfigError, match="Received: features='v'"):
        TFRecords(str(path), features="v")


def test_features_as_tensorflow_describes_them(tmp_path: Path) -> None:
    def spec(dtype: str, **more: Any) -> Any:
        return SimpleNamespace(dtype=SimpleNamespace(name=dtype), **more)

    features = {
        "v": spec("float32", shape=[2, 1], default_value=None),
        "x": spec("int64", shape=[], default_value=-1),
        "s": spec("string"),
    }
    batch = batch_of(
        tmp_path / "f",
        features,
        v=pa.array([[1.0, 2.0]] * 2, pa.list_(pa.float32())),
        x=[None, 5],
        s=["a", "b"],
    )
    assert batch.column("x").to_pylist() == [-1, 5]
    assert batch.column("v").type == pa.list_(pa.float32(), 2)
    assert batch.column("s").to_pylist() == [[b"a"], [b"b"]]


def test_a_broken_file_is_said_by_the_rank_that_reads_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(numbers(0, 5) + numbers(5, 6)[:-1])
    with pytest.raises(DataError, match=f"File: {tmp_path}/a"):
        shards(TFRecords(str(tmp_path), features={"x": "int64"}), 2)
