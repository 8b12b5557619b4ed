"""What runs inside each task of a feeding job: one partition of rows goes to a node of a live cluster."""

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from emberflow._protocol.codec import Message
from emberflow._protocol.live_messages import (
    PartitionBegin,
    PartitionKept,
    PartitionWelcome,
    RoundBegin,
    ShardSpooled,
)
from emberflow._task.node_dialing import FeedAccess, connected_to, connected_to_any
from emberflow._task.row_writer import RowsEndedError, spark_rows
from emberflow.errors import EmberflowError, NodeLostError, PeerError

if TYPE_CHECKING:
    import pyarrow as pa

    from emberflow._feed.batch_connection import BatchConnection

Kind = TypeVar("Kind", bound=Message)

STREAM_SCHEMA = "error string"
ROUND_SCHEMA = "place long, token string, facts string, error string"


@dataclass(frozen=True, kw_only=True)
class RoundTask:
    """A round, as its tasks receive it.

    Attributes:
        access: The nodes; partition r belongs to the r-th of them.
        number: The round's number.
        names: The names of the data.
    """

    access: FeedAccess
    number: int
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class StreamTask:
    """One feeding job of a stream, as its tasks receive it.

    Attributes:
        access: The nodes that take the stream.
        name: The stream's name.
        feed: The job's own name.
    """

    access: FeedAccess
    name: str
    feed: str


def feed_round(task: RoundTask, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """Bring one partition to its rank; yield which attempt did, and what the node knows of the rows."""
    import pyarrow as pa

    place, _ = task_numbers()
    yield pa.RecordBatch.from_pylist([bring_shard(task, place, batches)])


def bring_shard(task: RoundTask, place: int, batches: "Iterator[pa.RecordBatch]") -> dict[str, Any]:
    """Bring one shard to its node; return which attempt did, and what the node knows of the rows."""
    token = secrets.token_hex(8)
    facts, error = "", ""
    try:
        with connected_to(task.access, task.access.nodes[place]) as connection:
            connection.send(RoundBegin(task.number, token, task.names))
            connection.send_stream(spark_rows(batches))
            facts = json.dumps(_expect(ShardSpooled, connection).facts)
    except EmberflowError as refused:
        error = _refusal(refused)
    return {"place": place, "token": token, "facts": facts, "error": error}


def feed_partition(task: StreamTask, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """Bring one partition to the best node, unless another attempt did; yield why it was refused, if it was."""
    import pyarrow as pa

    if error := bring_partition(task, batches):
        yield pa.RecordBatch.from_pydict({"error": [error]})


def bring_partition(task: StreamTask, batches: "Iterator[pa.RecordBatch]") -> str:
    """Bring one partition to the best node, unless another attempt did; return why it was refused, or ""."""
    partition, attempt = task_numbers()
    rows: Iterator[Any] = (batch for batch in spark_rows(batches) if batch.num_rows)
    try:
        first = next(rows, None)
        if first is None:
            return ""
        with connected_to_any(task.access, partition) as connection:
            connection.send(PartitionBegin(task.name, task.feed, partition, attempt))
            if not _expect(PartitionWelcome, connection).is_committed:
                connection.send_stream(chain([first], rows))
                _expect(PartitionKept, connection)
    except EmberflowError as refused:
        return _refusal(refused)
    return ""


def task_numbers() -> tuple[int, int]:
    """Return the number of this task's partition, and of this attempt of it, unique in the application."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None  # noqa: S101 - this is a task, for the type checker
    return context.partitionId(), context.taskAttemptId()


def _refusal(error: EmberflowError) -> str:
    """Return an error as a row: were it raised, Spark would send all rows again, to the same answer."""
    if isinstance(error, NodeLostError | PeerError | RowsEndedError):
        raise error  # another attempt may succeed
    return json.dumps([type(error).__name__, error.problem, error.fix])


def _expect(kind: type[Kind], connection: "BatchConnection") -> Kind:
    answer = connection.receive()
    if not isinstance(answer, kind):
        raise PeerError(
            f"A node must send {kind.__name__} now. Received: {answer!r:.80}.",
            fix="Check that driver and executors run the same version of emberflow.",
        )
    return answer
