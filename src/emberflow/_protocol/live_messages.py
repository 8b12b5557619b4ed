"""Messages of a live cluster: what its driver and nodes say about feeds, and what a feeding task and a node say.

The docstring of a message begins with its direction. Those between driver and node pass through the process that
attends to the node. Rows follow a message as Arrow record batches (`_feed/batch_connection.py`).
"""

from dataclasses import dataclass

from emberflow._protocol.codec import Message

WARM = "warm"


@dataclass(frozen=True)
class FeedOpened(Message):
    """Node to task to driver: your function asks for rows or requests.

    Attributes:
        feed: "rounds", "stream" or "requests".
        name: The feed's name; "" for rounds, which bring names of their own.
    """

    feed: str
    name: str


@dataclass(frozen=True)
class FeedClosed(Message):
    """Node to task to driver: your function has left its loop over rounds or requests.

    Attributes:
        feed: "rounds" or "requests".
        name: The feed's name; "" for rounds.
        last: The number of the last round that it took; -1 if it took none.
    """

    feed: str
    name: str
    last: int = -1


@dataclass(frozen=True)
class RoundBegin(Message):
    """Task to node: the rows of your rank in a round follow.

    Attributes:
        number: The round's number.
        token: Random, of this attempt of the task.
        names: The names of the data.
    """

    number: int
    token: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class ShardSpooled(Message):
    """Node to task: all rows have arrived, and are kept until the driver decides.

    Attributes:
        facts: What is known of the rows, by the name of the data; a JSON text each.
    """

    facts: dict[str, str]


@dataclass(frozen=True)
class RoundReady(Message):
    """Driver to task to node: all ranks hold the rows of this round; it is yours.

    Attributes:
        number: The round's number.
        epochs: How often it is yielded.
        token: The attempt whose rows count; those of others are dropped.
        shards: What is known of the shards of all ranks, by the name of the data; a JSON text each.
        place: Which of them is the node's own: not its rank, where the run continues without a lost worker.
        resume_from: The stored model that your function must restore first, for a stream that continues; else empty.
        store_to: Where the chief must store the model afterwards, for a stream; else empty.
        exports: Whether a version of that model is to be published, and the chief exports it too.
    """

    number: int
    epochs: int
    token: str
    shards: dict[str, str]
    place: int
    resume_from: str = ""
    store_to: str = ""
    exports: bool = False


@dataclass(frozen=True)
class RoundDropped(Message):
    """Driver to task to node: the feeding job of this round failed; drop its rows."""

    number: int


@dataclass(frozen=True)
class RoundDone(Message):
    """Node to task to driver: your function has asked for the next round."""

    number: int


@dataclass(frozen=True)
class PartitionBegin(Message):
    """Task to node: the rows of a partition want to follow, for a stream.

    Attributes:
        name: The stream's name.
        feed: The feeding job: one epoch of one call.
        partition: The partition's number.
        attempt: Spark's number of this attempt of the task, unique in the application.
    """

    name: str
    feed: str
    partition: int
    attempt: int


@dataclass(frozen=True)
class PartitionWelcome(Message):
    """Node to task: send the rows of the partition; or, where they were committed before, do not.

    Attributes:
        is_committed: Whether another attempt has committed them.
    """

    is_committed: bool


@dataclass(frozen=True)
class PartitionKept(Message):
    """Node to task: the partition is committed, by this attempt or by another; the task is done."""


@dataclass(frozen=True)
class CommitAsked(Message):
    """Node to task to driver: may the rows of this attempt be used?

    Attributes:
        feed: The feeding job.
        partition: The partition's number.
        attempt: Spark's number of the attempt.
        rows: How many there are; None before they were sent: then nothing is committed yet.
    """

    feed: str
    partition: int
    attempt: int
    rows: int | None


@dataclass(frozen=True)
class CommitAnswer(Message):
    """Driver to task to node: the answer to `CommitAsked`; the first complete attempt of a partition wins."""

    feed: str
    partition: int
    attempt: int
    is_granted: bool


@dataclass(frozen=True)
class PartitionsTaken(Message):
    """Node to task to driver: your function has taken all rows of these partitions."""

    feed: str
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class FeedCounts(Message):
    """Node to task to driver: how many rows the node has, for ``cluster.status``; once per second at most.

    Attributes:
        taken: Rows that your function has taken so far, of all feeds; each epoch counts.
        waiting: Rows that are on the node for it to take.
        held: Feeding tasks that wait until it has taken rows: more do not fit.
    """

    taken: int
    waiting: int
    held: int = 0


@dataclass(frozen=True)
class StopFeeding(Message):
    """Node to task to driver: your function needs no more rows of this stream."""

    name: str


@dataclass(frozen=True)
class FeedStopped(Message):
    """Driver to task to node: this feeding job was ended; drop those of its rows that were not taken."""

    feed: str


@dataclass(frozen=True)
class RequestsBegin(Message):
    """Task to node: record batches follow, and each wants a reply before the next."""

    name: str


@dataclass(frozen=True)
class ReplyFollows(Message):
    """Node to task: your function has replied; the result follows as record batches."""


@dataclass(frozen=True)
class FeedRefused(Message):
    """Node to task: the rows or requests are not accepted; nothing of them is used.

    Attributes:
        error: The name of the error's class in `errors`.
        problem: What was expected, and what was received.
        fix: What to change.
    """

    error: str
    problem: str
    fix: str


@dataclass(frozen=True)
class FeedsEnd(Message):
    """Driver to task to node: the cluster is stopped; feeds end after what was made visible."""


TO_DRIVER = (FeedOpened, FeedClosed, RoundDone, CommitAsked, PartitionsTaken, FeedCounts, StopFeeding)
"""What a node sends to the driver, by way of its attendant."""
TO_NODE = (RoundReady, RoundDropped, CommitAnswer, FeedStopped, FeedsEnd)
"""What the driver sends to a node, by way of its attendant."""
