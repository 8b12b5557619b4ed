"""What a record holds: one frozen dataclass per event.

`t` is the time of the event on the driver, in seconds since the run began there. A field that is added later needs a
default, so that older records can still be read; a reader skips events that it does not know.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base of all events."""

    t: float


@dataclass(frozen=True, kw_only=True)
class RunStarted(Event):
    """The call has begun; nothing is planned yet.

    Attributes:
        run_id: Names the run in folders and logs.
        kind: "run", "cluster" or "parallel".
        name: What your function is called.
        at: The wall clock, in seconds since 1970.
        options: What the caller chose, where it is not the default.
        versions: Package to version.
    """

    run_id: str
    kind: str
    name: str
    at: float
    options: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PlannedNode:
    """A node before it starts."""

    rank: int
    role: str
    index: int


@dataclass(frozen=True, kw_only=True)
class RunPlanned(Event):
    """Spark can offer enough slots for all nodes, and it is decided how they start.

    Attributes:
        nodes: One per rank.
        plan: What was decided, in plain values.
    """

    nodes: tuple[PlannedNode, ...]
    plan: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RunWaits(Event):
    """Nodes cannot start yet.

    Attributes:
        why: What the run waits for, and who holds it.
    """

    why: str


@dataclass(frozen=True, kw_only=True)
class SlotsHeld(Event):
    """The slots of all nodes are this run's own: it is its turn among the runs of the driver."""


@dataclass(frozen=True, kw_only=True)
class AttemptStarted(Event):
    """All nodes start, for the first time or again."""

    attempt: int


@dataclass(frozen=True, kw_only=True)
class NodeJoined(Event):
    """The Spark task of a node has connected to the driver."""

    rank: int
    host: str


@dataclass(frozen=True, kw_only=True)
class NodeReady(Event):
    """The process of a node is up and takes rows."""

    rank: int


@dataclass(frozen=True, kw_only=True)
class ClusterFormed(Event):
    """All nodes have their rows and each other's addresses; your function begins."""


@dataclass(frozen=True, kw_only=True)
class RowsFed(Event):
    """How many rows one node has, and which side waits.

    Attributes:
        rank: The node.
        rows: Rows so far.
        rows_per_second: Their speed.
        waiting_for: "source", "sink" or "neither".
        is_training: Whether these are the rows that your function took; otherwise those that came to the node.
    """

    rank: int
    rows: int
    rows_per_second: float
    waiting_for: str
    is_training: bool = False


@dataclass(frozen=True, kw_only=True)
class NodeUsed(Event):
    """What one node uses of its host.

    Attributes:
        rank: The node.
        memory: Bytes of main memory.
        cpus: Processor cores that it kept busy since the event before.
        gpus: Name, ``memory``, ``memory_used`` and ``utilisation`` of each of its GPUs.
    """

    rank: int
    memory: int
    cpus: float = 0.0
    gpus: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class MetricsReported(Event):
    """One call of ``ctx.report``."""

    rank: int
    step: int | None
    values: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class LinesPrinted(Event):
    """What one node printed, one or more lines.

    Attributes:
        rank: The node.
        text: The lines.
        left_out: Lines before them that are not in the record.
    """

    rank: int
    text: str
    left_out: int = 0


@dataclass(frozen=True, kw_only=True)
class NodeEnded(Event):
    """How a node ended: "returned", "raised", "lost", "refused" or "undelivered"."""

    rank: int
    ending: str
    problem: str = ""
    fix: str = ""
    seconds: float = 0.0
    host: str = ""


@dataclass(frozen=True, kw_only=True)
class AttemptFailed(Event):
    """An attempt is over.

    Attributes:
        attempt: Its number.
        problem: Why, in one line.
        rank: The node that failed; -1 where none is the cause.
        is_restarted: Whether all nodes start again.
    """

    attempt: int
    problem: str
    rank: int = -1
    is_restarted: bool = False


@dataclass(frozen=True, kw_only=True)
class StillRunning(Event):
    """Nothing else has happened for a while, but the driver is there."""


@dataclass(frozen=True, kw_only=True)
class RunFailure:
    """The error that the caller got.

    Attributes:
        kind: Its class.
        problem: What was expected, and what was received.
        fix: What to change.
        traceback: That of your own function on the node, where it raised.
        rank: The node; -1 where none is the cause.
        log_tail: The last lines that the node printed.
    """

    kind: str
    problem: str
    fix: str = ""
    traceback: str = ""
    rank: int = -1
    log_tail: str = ""


@dataclass(frozen=True, kw_only=True)
class RunEnded(Event):
    """The call has returned or raised.

    Attributes:
        value: The beginning of what the chief returned, as text.
        failure: The error, if there was one.
        left_out: Events that are not in the record, since its storage was too slow for them.
    """

    value: str = ""
    failure: RunFailure | None = None
    left_out: int = 0
