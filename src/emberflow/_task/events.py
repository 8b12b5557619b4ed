"""What a task handles while it waits: messages of node, keeper and driver, and events of the task itself."""

from dataclasses import dataclass

from emberflow._protocol.codec import Message
from emberflow._protocol.node_messages import NodeExited
from emberflow.errors import EmberflowError


@dataclass(frozen=True)
class KeeperGone:
    """Monitor to runner: the keeper's output has closed."""


@dataclass(frozen=True)
class DriverGone:
    """Monitor or exchange to runner: the connection to the driver, or Spark's barrier, is gone."""

    why: str = ""


@dataclass(frozen=True)
class NodeStopped:
    """Monitor to runner: the node has not answered for `limit` seconds, and is being killed for that."""

    limit: float


@dataclass(frozen=True)
class FeedFailed:
    """Row writer to runner: the node gets no more rows."""

    error: EmberflowError


TaskEvent = Message | KeeperGone | DriverGone | NodeStopped | FeedFailed


class QuitError(Exception):
    """The driver has told this task to end, or is gone."""


def is_exit(event: TaskEvent) -> bool:
    """Tell whether the node's process is over."""
    return isinstance(event, NodeExited | KeeperGone)
