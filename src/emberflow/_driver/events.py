"""What an attempt handles while it runs: events of the hub, of the Spark job and of the value server."""

import queue
from dataclasses import dataclass
from typing import Any

from emberflow._plan.roles import Node
from emberflow._protocol.codec import Message
from emberflow._protocol.outcome import Ending, Outcome, outcome_of


@dataclass(frozen=True)
class Joined:
    """Hub to attempt: the task of this rank has connected."""

    rank: int
    host: str


@dataclass(frozen=True)
class JoinedAgain:
    """Hub to attempt: a second task of this rank has connected; it starts no node."""

    rank: int


@dataclass(frozen=True)
class Formed:
    """Hub to attempt: all nodes have met.

    Attributes:
        endpoints: One dictionary of addresses per rank.
    """

    endpoints: list[dict[str, str]]


@dataclass(frozen=True)
class NodeSent:
    """Hub to attempt: the task of this rank has sent a message."""

    rank: int
    message: Message


@dataclass(frozen=True)
class Gone:
    """Hub to attempt: the connection to the task of this rank has closed.

    Attributes:
        why: Why the hub closed it, where it was the hub.
    """

    rank: int
    why: str = ""


@dataclass(frozen=True)
class Undelivered:
    """Value server to attempt: the value of this rank could not be stored.

    Attributes:
        rank: The node; in `run_parallel` the number of the task.
        problem: What happened.
        fix: What to do about it.
        exception_type: The class of the error.
    """

    rank: int
    problem: str
    fix: str
    exception_type: str

    def outcome(self, node: Node, host: str) -> Outcome:
        """Return the outcome of the node whose value it is."""
        return outcome_of(
            node,
            host,
            Ending.UNDELIVERED,
            problem=self.problem,
            fix=self.fix,
            exception_type=self.exception_type,
        )


@dataclass(frozen=True)
class JobRows:
    """Job to attempt: all stages have ended, and these are their rows."""

    rows: list[Any]


@dataclass(frozen=True)
class JobFailed:
    """Job to attempt: Spark has raised an error.

    Attributes:
        error: What Spark raised.
        first_rank: The first rank of the stage that failed.
    """

    error: Exception
    first_rank: int = 0


@dataclass(frozen=True)
class TasksRunning:
    """Job to attempt: on Spark Connect, how many tasks run; there may be no other sign of them."""

    count: int


@dataclass(frozen=True)
class StopAsked:
    """Cluster to attempt: end; `None` for at once.

    Attributes:
        timeout: Seconds until your function must have returned on every node.
    """

    timeout: float | None


AttemptEvent = (
    Joined
    | JoinedAgain
    | Formed
    | NodeSent
    | Gone
    | Undelivered
    | JobRows
    | JobFailed
    | TasksRunning
    | StopAsked
)
Events = queue.Queue[AttemptEvent]
