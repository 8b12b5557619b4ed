"""Streams on a node: partitions are visible once, complete, in bounded number."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from emberflow._node.node_spec import LiveSpec
from emberflow._protocol.live_messages import (
    FeedOpened,
    FeedsEnd,
    FeedStopped,
    PartitionBegin,
    PartitionsTaken,
    PartitionWelcome,
    StopFeeding,
)
from emberflow.errors import ClusterError, ConfigError, DataError
from tests.unit.live_nodes import FedNode, batches_of, fed_node
from tests.unit.nodes import WITHIN

pytestmark = pytest.mark.usefixtures("nothing_open")


def values_of(batches: Any) -> list[int]:
    return [value for batch in batches for value in batch.column("x").to_pylist()]


def test_partitions_are_taken_in_the_order_of_their_commits_and_reported(tmp_path: Path) -> None:
    with fed_node(tmp_path) as node:
        stream = node.feeds.stream()
        assert node.next_sent() == FeedOpened("stream", "train")
        assert node.bring_partition(3, 1, range(30))
        assert node.bring_partition(1, 2, range(30, 45))
        node.feeds.on_message(FeedsEnd())
        assert values_of(stream) == list(range(45))
        assert [node.next_sent(), node.next_sent()] == [
            PartitionsTaken("train-0", (3,)),
            PartitionsTaken("train-0", (1,)),
        ]


def test_so_many_rows_at_a_time_also_across_partitions(tmp_path: Path) -> None:
    with fed_node(tmp_path) as node:
        stream = node.feeds.stream()
        for partition in range(3):
            node.bring_partition(partition, partition, range(10 * partition, 10 * partition + 10))
        sizes, values = [], []
        node.feeds.on_message(FeedsEnd())
        while (batch := stream.next(8)) is not None:
            sizes.append(batch.num_rows)
            values += values_of([batch])
        assert sizes == [8, 8, 8, 6]
        assert values == list(range(30))


def test_what_is_there_is_not_kept_waiting_for_more(tmp_path: Path) -> None:
    with fed_node(tmp_path) as node:
        stream = node.feeds.stream()
        node.bring_partition(0, 0, range(5))
        assert values_of([stream.next(100)]) == list(range(5))
        node.bring_partition(1, 1, range(5, 7))
        assert values_of([stream.next(100)]) == [5, 6]


def test_of_two_attempts_of_a_partition_one_is_seen(tmp_path: Path) -> None:
    with fed_node(tmp_path) as node, ThreadPoolExecutor(2) as pool:
        stream = node.feeds.stream()
        both = [pool.submit(node.bring_partition, 0, attempt, range(500), size=1) for attempt in (1, 2)]
        assert any(each.result(WITHIN) for each in both)
        assert not node.bring_partition(0, 3, range(500))  # returns at once
        node.feeds.on_message(FeedsEnd())
        assert values_of(stream) == list(range(500))
        assert node.ledger.rows == 500


def test_a_task_that_dies_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    with fed_node(tmp_path) as node:
        stream = node.feeds.stream()
        begin_partition(node, 0, 1).close()
        assert node.bring_partition(0, 2, range(20))
        node.feeds.on_message(FeedsEnd())
        assert values_of(stream) == list(range(20))


def begin_partition(node: FedNode, partition: int, attempt: int) -> Any:
    """Be a task that has sent some of its rows."""
    connection = node.dial()
    connection.send(PartitionBegin("train", "train-0", partition, attempt))
    assert connection.receive() == PartitionWelcome(is_committed=False)
    (batch,) = batches_of(range(10))
    connection.send_schema(batch.schema)
    connection.send_batch(batch)
    return connection


def test_a_node_above_its_backlog_accepts_no_further_partition(tmp_path: Path) -> None:
    with fed_node(tmp_path, live=LiveSpec(backlog=1)) as node, ThreadPoolExecutor(1) as pool:
        stream = node.feeds.stream()
        assert node.bring_partition(0, 0, range(10))
        waiting = pool.submit(node.bring_partition, 1, 1, range(10, 20))
        with pytest.raises(TimeoutError):
            waiting.result(0.3)
        assert node.ledger.rows == 10
        assert values_of([stream.next(10)]) == list(range(10))
        assert waiting.result(WITHIN)
        assert values_of([stream.next(10)]) == list(range(10, 20))


def test_a_stopped_feed_is_dropped_where_it_was_not_taken(tmp_path: Path) -> None:
    with fed_node(tmp_path) as node:
        stream = node.feeds.stream()
        node.bring_partition(0, 0, range(10))
        node.feeds.stop_feeding()
        assert [node.next_sent(), node.next_sent()] == [FeedOpened("stream", "train"), StopFeeding("train")]
        node.ledger.is_stopped = True
        node.feeds.on_message(FeedStopped("train-0"))
        assert not node.bring_partition(1, 1, range(10))
        node.ledger.is_stopped = False
        assert node.bring_partition(0, 2, range(50, 60), feed="train-1") is False  # partition 0 is committed
        assert node.bring_partition(7, 2, range(50, 60), feed="train-1")
        assert values_of([stream.next(100)]) == list(range(50, 60))


def test_other_columns_and_names_are_refused(tmp_path: Path) -> None:
    with fed_node(tmp_path) as node:
        with pytest.raises(ConfigError, match="there are: none"):
            node.bring_partition(0, 0, range(10))
        node.feeds.stream()
        node.bring_partition(0, 0, range(10))
        with pytest.raises(DataError, match=r"Received: y: int64; before: x: int64"):
            node.bring_partition(1, 1, range(10), name="y")


def test_a_full_disk_is_told_to_the_task(tmp_path: Path) -> None:
    with fed_node(tmp_path, live=LiveSpec(spool_limit=1000)) as node:
        node.feeds.stream()
        with pytest.raises(DataError, match="spool_limit=1000"):
            node.bring_partition(0, 0, range(10_000_000), size=1_000_000)


def test_the_end_wakes_your_function_and_tasks_that_wait(tmp_path: Path) -> None:
    with fed_node(tmp_path, live=LiveSpec(backlog=1)) as node, ThreadPoolExecutor(2) as pool:
        stream = node.feeds.stream()
        waiting = pool.submit(stream.next, 10)
        node.feeds.on_message(FeedsEnd())
        assert waiting.result(WITHIN) is None
        node.bring_partition(0, 0, range(10))
        task = pool.submit(node.bring_partition, 1, 1, range(10))
        with pytest.raises(TimeoutError):
            task.result(0.2)
        node.feeds.close()
        with pytest.raises((ClusterError, OSError)):
            task.result(WITHIN)
