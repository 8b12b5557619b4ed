"""Datasets of rounds and streams: the orders of a run, and no row that waits."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from emberflow._feed.dataset import DatasetOptions, Shard, make_dataset
from emberflow._feed.shards import merge_shards
from emberflow._feed.spool import Spool, SpoolWriter
from emberflow._protocol.live_messages import FeedsEnd
from emberflow.errors import DataError
from tests.unit.live_nodes import FedNode, batches_of, fed_node
from tests.unit.test_live_feeds import ready


@pytest.fixture
def node(tmp_path: Path) -> Iterator[FedNode]:
    with fed_node(tmp_path, workers=1) as node:
        yield node


def values_of(dataset: Any) -> list[list[int]]:
    return [[int(x) for x in batch] for batch in dataset]


def orders_of_a_run(folder: Path, rows: range, epochs: int) -> list[list[list[int]]]:
    """Return the batches of each epoch of ``ef.run`` over the same rows."""
    with SpoolWriter(folder) as writer:
        for batch in batches_of(rows):
            writer.write(batch)
        file = writer.finish()
    shard = Shard(name="train", rank=0, spool=Spool(file), facts=merge_shards([file.facts]))
    file.close()
    dataset = make_dataset(shard, DatasetOptions(batch_size=10, features="x", seed=7)).dataset
    return [values_of(dataset) for _ in range(epochs)]


def test_the_epochs_of_a_round_have_the_orders_of_a_run(node: FedNode, tmp_path: Path) -> None:
    node.feeds.on_message(ready(0, "a", node.bring(0, "a", range(95)), epochs=3))
    node.feeds.on_message(FeedsEnd())
    seen, steps = [], []
    for each in node.feeds.rounds():
        seen.append(values_of(each.dataset(features="x", batch_size=10, seed=7)))
        steps.append((each.position().epoch, each.position().step))
    assert seen == orders_of_a_run(tmp_path, range(95), 3)
    assert seen[0] != seen[1]
    assert [sorted(x for batch in epoch for x in batch) for epoch in seen] == [list(range(95))] * 3
    assert steps == [(1, 0), (2, 0), (3, 0)]


def test_a_dataset_of_a_stream_has_each_row_once_and_keeps_none_waiting(node: FedNode) -> None:
    stream = node.feeds.stream()
    for partition in range(3):
        node.bring_partition(partition, partition, range(25 * partition, 25 * partition + 25))
    batches = iter(stream.dataset(batch_size=10, features="x"))
    first = [[int(x) for x in next(batches)] for _ in range(8)]
    assert [x for batch in first for x in batch] == list(range(75))
    assert max(map(len, first)) == 10
    node.bring_partition(3, 3, range(75, 78))
    assert [int(x) for x in next(batches)] == [75, 76, 77]
    node.feeds.on_message(FeedsEnd())
    assert next(batches, None) is None


def test_rows_of_a_stream_that_do_not_fit_the_first_are_an_error(node: FedNode) -> None:
    stream = node.feeds.stream("lists")
    lists = [pa.RecordBatch.from_pydict({"x": [[1.0, 2.0]]}), pa.RecordBatch.from_pydict({"x": [[1.0]]})]
    for partition, batch in enumerate(lists):
        node.bring_batches("lists", partition, [batch])
    dataset = stream.dataset(batch_size=1, features="x")
    with pytest.raises(Exception, match=r"Column 'x' must hold rows of shape \(2,\), as the first rows did"):
        list(dataset)


def test_a_stream_without_rows_has_no_dataset(node: FedNode) -> None:
    stream = node.feeds.stream()
    node.feeds.on_message(FeedsEnd())
    with pytest.raises(DataError, match="ended without rows"):
        stream.dataset(batch_size=10)
