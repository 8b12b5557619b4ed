"""What a live node tells of its rows: once per second at most, and always the last news."""

import queue
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from emberflow._node.node_spec import LiveSpec
from emberflow._node.row_counts import RowCounts
from emberflow._protocol.codec import Message
from emberflow._protocol.live_messages import FeedCounts, FeedStopped
from tests.unit.live_nodes import FedNode, fed_node
from tests.unit.nodes import WITHIN
from tests.unit.test_live_feeds import ready


def last_counts(node: FedNode, wanted: FeedCounts) -> None:
    """Wait for this news; what comes before it is older."""
    while node.counts.get(timeout=WITHIN) != wanted:
        pass


def test_news_are_told_at_once_then_together_and_the_last_at_the_end() -> None:
    told: queue.SimpleQueue[Message] = queue.SimpleQueue()
    counts = RowCounts(told.put)
    counts.add(10)
    assert told.get(timeout=WITHIN) == FeedCounts(0, 10)
    for _ in range(5):
        counts.take(2)  # within the same second
    counts.close()
    assert told.get(timeout=WITHIN) == FeedCounts(10, 0)
    assert told.empty()


def test_rows_of_a_stream_wait_are_taken_or_dropped(tmp_path: Path) -> None:
    with fed_node(tmp_path) as node:
        stream = node.feeds.stream()
        assert node.bring_partition(0, 1, range(30))
        last_counts(node, FeedCounts(0, 30))
        assert stream.next(12).num_rows == 12
        last_counts(node, FeedCounts(12, 18))
        assert node.bring_partition(1, 2, range(5))
        last_counts(node, FeedCounts(12, 23))
        node.feeds.on_message(FeedStopped("train-0"))  # the partition that was begun is taken to its end
        last_counts(node, FeedCounts(12, 18))


def test_every_epoch_of_a_round_counts_and_what_is_left_out_does_not_wait(tmp_path: Path) -> None:
    with fed_node(tmp_path, workers=1) as node:
        spooled = node.bring(0, "t", range(20))
        node.feeds.on_message(ready(0, "t", spooled, epochs=3))
        last_counts(node, FeedCounts(0, 60))
        rounds = node.feeds.rounds()
        next(rounds)
        next(rounds)
        last_counts(node, FeedCounts(20, 40))
        rounds.close()  # type: ignore[attr-defined]
        last_counts(node, FeedCounts(20, 0))


def test_tasks_that_wait_for_room_are_told(tmp_path: Path) -> None:
    with fed_node(tmp_path, live=LiveSpec(backlog=1)) as node, ThreadPoolExecutor(1) as pool:
        stream = node.feeds.stream()
        assert node.bring_partition(0, 0, range(10))
        waiting = pool.submit(node.bring_partition, 1, 1, range(10, 20))
        last_counts(node, FeedCounts(0, 10, held=1))
        assert stream.next(10).num_rows == 10
        assert waiting.result(WITHIN)
        last_counts(node, FeedCounts(10, 10, held=0))
