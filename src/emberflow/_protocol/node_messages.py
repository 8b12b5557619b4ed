"""Messages on one host: between a node and its Spark task, and between the task and its keeper.

The docstring of a message begins with its direction.
"""

from dataclasses import dataclass, field
from typing import Any

from emberflow._protocol.codec import Message


@dataclass(frozen=True)
class StartNode(Message):
    """Task to node: begin with the `NodeSpec` that lies in the socket for rows.

    Attributes:
        sys_path: Where the node's Python finds modules, as the task's does.
    """

    sys_path: list[str]


@dataclass(frozen=True)
class Ready(Message):
    """Node to task: rows may come; your function is loaded, or will be after what it imports.

    Attributes:
        endpoints: Addresses at which other nodes reach this one, by what they are for.
    """

    endpoints: dict[str, str]


@dataclass(frozen=True)
class StepsOffered(Message):
    """Node to task: the steps of a stream's next window that this rank can fill."""

    steps: int


@dataclass(frozen=True)
class StepsAgreed(Message):
    """Task to node: the most steps that any rank can fill, so that all take as many."""

    steps: int


@dataclass(frozen=True)
class Serving(Message):
    """Node to task: a server for other nodes runs here, so this node may leave when all who train are done."""

    address: str


@dataclass(frozen=True)
class TensorBoardStarted(Message):
    """Node to task to driver: TensorBoard serves at this address."""

    url: str


@dataclass(frozen=True)
class Returned(Message):
    """Node to task: your function has returned.

    Attributes:
        seconds: How long it ran.
        value_bytes: Size of the pickled value, in a file of the node's folder.
        datasets: What it read, by the name of the data.
        value_key: The key of that file where local files are encrypted, else empty.
    """

    seconds: float
    value_bytes: int
    datasets: dict[str, Any] = field(default_factory=dict)
    value_key: str = field(default="", repr=False)


@dataclass(frozen=True)
class Raised(Message):
    """Node to task: your function raised, or the node could not start.

    Attributes:
        problem: The traceback from your own first frame on.
        fix: What to do about it, where that is known.
        exception_type: The name of the exception's class.
        seconds: How long it ran.
        is_refused: Whether the node itself could not start, so that your function was not called.
    """

    problem: str
    fix: str = ""
    exception_type: str = ""
    seconds: float = 0.0
    is_refused: bool = False


@dataclass(frozen=True)
class Leave(Message):
    """Task to node: all who train are done; end."""


@dataclass(frozen=True)
class Ping(Message):
    """Task to node: answer with `Pong`."""


@dataclass(frozen=True)
class Pong(Message):
    """Node to task: this process runs."""


@dataclass(frozen=True)
class NodeUp(Message):
    """Attendant to task: all nodes are up, so the task may release this process."""


@dataclass(frozen=True)
class NodeRefused(Message):
    """Attendant to task: the node cannot start, and the driver cannot be told but by the task.

    Attributes:
        outcome: How it ended, as an error's text carries it.
    """

    outcome: str


@dataclass(frozen=True)
class KeeperOrder(Message):
    """Task to keeper: the one line on its standard input.

    Attributes:
        argv: The node's command; none where the node is a fork of its keeper.
        environment: All of the node's environment variables.
        folders: Deleted when the node has ended.
        held_fds: Kept open until the keeper ends, and not passed on to the node.
        log_fd: The node's standard output and error.
        node_fds: Passed on to the node, closed in the keeper.
        watched_fds: Of those held: each becomes readable when a process ends that the node must not outlive.
    """

    argv: list[str]
    environment: dict[str, str]
    folders: list[str]
    held_fds: tuple[int, ...]
    log_fd: int
    node_fds: tuple[int, ...]
    watched_fds: tuple[int, ...] = ()


@dataclass(frozen=True)
class NodeStarted(Message):
    """Keeper to task: the first line on its standard output."""

    pid: int


@dataclass(frozen=True)
class NodeExited(Message):
    """Keeper to task: the last line on its standard output; nothing of the node is left.

    Attributes:
        status: The exit code, negative for a signal; None where the keeper had to kill the node.
        executor_ended: Whether it had to because the executor has ended.
    """

    status: int | None
    executor_ended: bool = False
