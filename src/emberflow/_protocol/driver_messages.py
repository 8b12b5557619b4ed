"""Messages between a Spark task and the driver. Some of them the task passes on from its node, or to it.

The docstring of a message begins with its direction.
"""

from dataclasses import dataclass, field
from typing import Any

from emberflow._protocol.codec import Message
from emberflow._protocol.node_state import NodeState


@dataclass(frozen=True)
class Join(Message):
    """Task to driver: the first message of a connection; it is that of this rank."""

    rank: int
    host: str


@dataclass(frozen=True)
class Admission(Message):
    """Driver to task: the answer to `Join`.

    Attributes:
        is_granted: Whether this task runs the node of its rank, as the first one does. A later one, which Spark
            has started on its own, waits for `Quit`.
    """

    is_granted: bool


@dataclass(frozen=True)
class OpenValues(Message):
    """Task to driver: the first message of a connection for large values; what follows is `file_transfer`."""


@dataclass(frozen=True)
class NodeReady(Message):
    """Task to driver: the node's process is up and takes rows."""


@dataclass(frozen=True)
class FunctionReturned(Message):
    """Task to driver: your function has returned on a live node, which takes no more rows."""


@dataclass(frozen=True)
class LogLines(Message):
    """Task to driver: what the node printed, one or more lines."""

    text: str


@dataclass(frozen=True)
class RowsWritten(Message):
    """Task to driver: how many rows have been written for the node so far.

    Attributes:
        progress: The counters of `_feed.progress.Progress`.
    """

    progress: dict[str, Any]


@dataclass(frozen=True)
class RowsTaken(Message):
    """Node to task to driver: how many rows your function has taken so far.

    Attributes:
        datasets: The counters of `_feed.feed_progress.Progress` of all data, by name.
    """

    datasets: dict[str, Any]


@dataclass(frozen=True)
class NodeUsage(Message):
    """Task to driver: what the node uses of its host.

    Attributes:
        memory: Bytes of main memory.
        cpus: Processor cores that it kept busy since the message before.
        gpus: What is seen of its own GPUs, one dictionary each.
    """

    memory: int
    cpus: float
    gpus: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Gather(Message):
    """Task to driver: this rank's value in an exchange among ranks.

    Attributes:
        tag: The exchange's name.
        value: This rank's value.
        of: Only the first so many ranks take part, and those of them that are done are not waited for; None: all.
    """

    tag: str
    value: Any
    of: int | None = None


@dataclass(frozen=True)
class Gathered(Message):
    """Driver to task: an exchange among ranks is complete.

    Attributes:
        tag: The exchange's name.
        values: The values of the ranks that took part, in rank order.
    """

    tag: str
    values: list[Any]


@dataclass(frozen=True)
class StartupFacts(Message):
    """Task to driver: what this rank brings to the exchange before your function begins.

    Attributes:
        endpoints: The node's addresses.
        shards: Its shards in brief, by the name of the data.
        blobs: What the digests in the briefs stand for, by digest.
    """

    endpoints: dict[str, str]
    shards: dict[str, list[Any]] = field(default_factory=dict)
    blobs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cluster(Message):
    """Driver to task to node: all ranks have brought their `StartupFacts`; your function may begin.

    Attributes:
        endpoints: One dictionary of addresses per rank.
        shards: What is known of all shards, by the name of the data; a JSON text each.
    """

    endpoints: list[dict[str, str]]
    shards: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NoCluster(Message):
    """Driver to task: the shards of the ranks do not fit together; instead of `Cluster`."""

    problem: str
    fix: str


@dataclass(frozen=True)
class Probe(Message):
    """Driver to task: answer with `ProbeAnswer`; other ranks wait for this one."""


@dataclass(frozen=True)
class ProbeAnswer(Message):
    """Task to driver: what the node is doing."""

    state: NodeState


@dataclass(frozen=True)
class WorkerLost(Message):
    """Driver to task to node: the run continues without this worker."""

    rank: int


@dataclass(frozen=True)
class Quit(Message):
    """Driver to task: end the node, and return."""
