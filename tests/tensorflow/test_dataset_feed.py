"""The feed as the context uses it: by name, with streams and progress."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from emberflow._feed.arrays import KEY
from emberflow._feed.dataset import DatasetOptions, Shard
from emberflow._feed.feed import Feed
from emberflow._feed.file_source import rank_batches
from emberflow._feed.parquet import Parquet
from emberflow._feed.pipeline import place_ahead
from emberflow._feed.shards import merge_shards
from emberflow._feed.spool import Spool, SpoolWriter
from emberflow._feed.stream import Stream, first_facts
from emberflow.errors import ConfigError, DataError

tf = pytest.importorskip("tensorflow")


def batch_of(start: int, rows: int) -> Any:
    return pa.RecordBatch.from_pydict({KEY: range(start, start + rows), "id": range(start, start + rows)})


def shard_of(folder: Path, batches: Any, name: str) -> Shard:
    with SpoolWriter(folder) as writer:
        for batch in batches:
            writer.write(batch)
        file = writer.finish()
    spool = Spool(file)
    file.close()
    return Shard(name=name, rank=0, spool=spool, facts=merge_shards([file.facts]))


def ids_of(dataset: Any) -> list[int]:
    return [row for batch in dataset for row in batch["id"].numpy().tolist()]


def test_data_is_found_by_name(tmp_path: Path) -> None:
    feed = Feed(
        {
            "train": shard_of(tmp_path, [batch_of(0, 10)], "train"),
            "validation": shard_of(tmp_path, [batch_of(50, 3)], "validation"),
        }
    )
    options = DatasetOptions(batch_size=4)
    train, validation = feed.dataset("train", options), feed.dataset("validation", options)
    for _ in range(2):
        assert sorted(ids_of(train)) == list(range(10))
        assert sorted(ids_of(validation)) == [50, 51, 52]
    assert (feed.position("train").epoch, feed.position("validation").epoch) == (2, 2)
    assert (feed.rows("train"), feed.rows("validation")) == (10, 3)
    assert [batch.to_pydict() for batch in feed.arrow("validation")] == [{"id": [50, 51, 52]}]
    assert feed.progress()["train"]["rows"] == 20
    with pytest.raises(ConfigError, match="there are: train, validation"):
        feed.dataset("test", options)


def test_a_stream_is_one_pass_without_position(tmp_path: Path) -> None:
    facts, batches = first_facts([batch_of(0, 600), batch_of(600, 400)])
    feed = Feed({"train": Stream(name="train", rank=0, batches=batches, facts=merge_shards([facts]))})
    dataset = feed.dataset("train", DatasetOptions(batch_size=128))
    sizes = [len(batch["id"]) for batch in dataset]
    assert sizes == [128] * 7 + [104]
    assert feed.progress()["train"]["rows"] == 1000
    with pytest.raises(tf.errors.InvalidArgumentError, match="a second pass over 'train'"):
        ids_of(dataset)
    with pytest.raises(DataError, match="cache=False"):
        feed.position("train")
    with pytest.raises(DataError, match="cache=False"):
        feed.rows("train")


def test_errors_of_the_feed_reach_the_trainer(tmp_path: Path) -> None:
    def broken() -> Any:
        yield batch_of(0, 10)
        raise DataError("The rows of the shard must be complete.", fix="See the task.")

    facts, batches = first_facts(broken())
    feed = Feed({"train": Stream(name="train", rank=0, batches=batches, facts=merge_shards([facts]))})
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be complete"):
        ids_of(feed.dataset("train", DatasetOptions(batch_size=4)))


def test_parquet_rows_take_the_same_way(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": range(100)}), tmp_path / "a.parquet", row_group_size=30)
    source = Parquet(str(tmp_path))
    shards = [shard_of(tmp_path / "spool", rank_batches(source, rank, 2), "train") for rank in range(2)]
    facts = merge_shards(shard.spool.facts for shard in shards)
    feeds = [
        Feed({"train": Shard(name="train", rank=rank, spool=shard.spool, facts=facts)})
        for rank, shard in enumerate(shards)
    ]
    datasets = [feed.dataset("train", DatasetOptions(global_batch_size=16)) for feed in feeds]
    assert sorted(row for dataset in datasets for row in ids_of(dataset)) == list(range(100))
    assert {int(dataset.cardinality()) for dataset in datasets} == {7}
    assert feeds[0].position("train") == feeds[1].position("train")


def test_a_trainer_that_stands_still_stops_the_feed(tmp_path: Path) -> None:
    batches = [batch_of(start, 1000) for start in range(0, 400_000, 1000)]
    asked = []

    def source() -> Any:
        for batch in batches:
            asked.append(batch)
            yield batch

    facts, rows = first_facts(source())
    feed = Feed({"train": Stream(name="train", rank=0, batches=rows, facts=merge_shards([facts]))})
    iterator = iter(feed.dataset("train", DatasetOptions(batch_size=100)))
    next(iterator)
    before = feed.progress()["train"]["sink_seconds"]
    next(iterator)
    assert len(asked) < 10
    assert feed.progress()["train"]["sink_seconds"] >= before


def test_batches_placed_ahead_on_a_device_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "emberflow._feed.feed.first_gpu", lambda: "/CPU:0"
    )  # where TensorFlow places as on a GPU
    feed = Feed({"train": shard_of(tmp_path, [batch_of(0, 50), batch_of(50, 51)], "train")})
    plain = [
        ids_of(dataset) for dataset in [feed.dataset("train", DatasetOptions(batch_size=4))] for _ in (1, 2)
    ]
    placed = feed.dataset("train", DatasetOptions(batch_size=4, on_device=True))
    assert [ids_of(placed), ids_of(placed)] == plain
    assert sorted(plain[0]) == list(range(101))
    assert plain[0] != plain[1]
    assert (feed.position("train", steps=27).epoch, feed.position("train", steps=27).step) == (1, 1)
    with pytest.raises(ConfigError, match="needs the number of steps trained"):
        feed.position("train")


def test_without_a_gpu_on_device_changes_nothing(tmp_path: Path) -> None:
    feed = Feed({"train": shard_of(tmp_path, [batch_of(0, 10)], "train")})
    batches = iter(
        feed.dataset("train", DatasetOptions(batch_size=5, on_device=True)).map(lambda row: row["id"])
    )
    next(batches)
    assert feed.position("train").step == 1


@pytest.mark.parametrize(("rows", "batches"), [(1, 16), (1 << 20, 8), (1 << 30, 2)])
def test_batches_that_wait_on_a_device_are_limited_by_bytes(rows: int, batches: int) -> None:
    dataset = tf.data.Dataset.from_tensor_slices(tf.zeros([3, 2, 2], tf.float32))  # 8 bytes a row of a batch
    placed = place_ahead(dataset, "/CPU:0", rows)
    assert int(tf.get_static_value(placed._buffer_size)) == batches
