"""Nodes of a live cluster without processes: real `LiveFeeds` with real sockets, and tasks that dial them."""

import contextlib
import hmac
import queue
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from emberflow._driver.stream_feeding import Ledger
from emberflow._feed.batch_connection import FEED, BatchConnection
from emberflow._node.live_feeds import LiveFeeds
from emberflow._node.node_spec import LiveSpec, NodeSpec
from emberflow._protocol.codec import Message
from emberflow._protocol.live_messages import (
    CommitAnswer,
    CommitAsked,
    FeedCounts,
    PartitionBegin,
    PartitionKept,
    PartitionWelcome,
    RoundBegin,
    ShardSpooled,
)
from emberflow._protocol.sealed_socket import SealedSocket
from emberflow._protocol.sockets import dial, dial_abstract, host_and_port
from tests.unit.nodes import KEY, WITHIN, plan_of

RANKS_KEY = hmac.digest(KEY, b"ranks", "sha256")
FEED_KEY = hmac.digest(RANKS_KEY, b"feed", "sha256")


def spec_of(
    folder: Path, rank: int = 0, workers: int = 2, live: LiveSpec | None = None, **plan: Any
) -> NodeSpec:
    planned = plan_of(workers, **{"exchange_timeout": WITHIN} | plan)
    return NodeSpec(
        me=planned.nodes[rank],
        plan=planned,
        host="127.0.0.1",
        folder=str(folder),
        devices=(),
        key=RANKS_KEY,
        fn=b"",
        live=live or LiveSpec(),
    )


class FedNode:
    """One node, and what it has sent to the driver."""

    def __init__(self, spec: NodeSpec) -> None:
        self.sent: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.counts: queue.SimpleQueue[FeedCounts] = queue.SimpleQueue()
        self.ledger = Ledger("train", "tag")
        self.feeds = LiveFeeds(spec, self._on_sent)
        self._encrypts = spec.plan.encrypt

    def _on_sent(self, message: Message) -> None:
        """Be the driver: keep the ledger of partitions, and what else was sent."""
        if isinstance(message, CommitAsked):
            is_granted = self.ledger.commit(0, message)
            self.feeds.on_message(CommitAnswer(message.feed, message.partition, message.attempt, is_granted))
        elif isinstance(message, FeedCounts):
            self.counts.put(message)
        else:
            self.sent.put(message)

    def next_sent(self) -> Message:
        return self.sent.get(timeout=WITHIN)

    def dial(self, key: bytes = FEED_KEY, *, by_tcp: bool = False) -> BatchConnection:
        return BatchConnection(self.dial_socket(key, by_tcp=by_tcp), WITHIN, encrypt=self._encrypts)

    def dial_socket(self, key: bytes = FEED_KEY, *, by_tcp: bool = False) -> SealedSocket:
        if by_tcp:
            host, port = host_and_port(self.feeds.endpoint["feed"])
            return dial(host, port, key, FEED, WITHIN)
        return dial_abstract(self.feeds.endpoint["feed_name"], key, FEED, WITHIN)

    def bring(
        self, number: int, token: str, rows: range, *, by_tcp: bool = False, **more: Any
    ) -> ShardSpooled:
        """Be the task of one attempt: bring rows, and return what the node knows of them."""
        with contextlib.closing(self.dial(by_tcp=by_tcp)) as connection:
            connection.send(RoundBegin(number, token, ("train",)))
            connection.send_stream(batches_of(rows, **more))
            answer = connection.receive()
            assert isinstance(answer, ShardSpooled)
            return answer

    def bring_partition(
        self, partition: int, attempt: int, rows: range, feed: str = "train-0", **more: Any
    ) -> bool:
        """Be a task of a stream: bring a partition; tell whether its rows were wanted."""
        begin = PartitionBegin("train", feed, partition, attempt)
        return self._bring(begin, batches_of(rows, **more))

    def bring_batches(self, name: str, partition: int, batches: Iterable[Any]) -> bool:
        """The same with any batches, for a stream of any name."""
        return self._bring(PartitionBegin(name, f"{name}-0", partition, partition), batches)

    def _bring(self, begin: PartitionBegin, batches: Iterable[Any]) -> bool:
        with contextlib.closing(self.dial()) as connection:
            connection.send(begin)
            welcome = connection.receive()
            assert isinstance(welcome, PartitionWelcome)
            if welcome.is_committed:
                return False
            connection.send_stream(batches)
            assert connection.receive() == PartitionKept()
            return True


def batches_of(rows: range, *, size: int = 10, name: str = "x") -> Iterator[Any]:
    for start in range(rows.start, rows.stop, size):
        values = list(range(start, min(start + size, rows.stop)))
        yield pa.RecordBatch.from_pydict({name: values})


@contextlib.contextmanager
def fed_node(folder: Path, **more: Any) -> Iterator[FedNode]:
    node = FedNode(spec_of(folder, **more))
    try:
        yield node
    finally:
        node.feeds.close()
