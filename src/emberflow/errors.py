"""Every error that Emberflow raises.

EmberflowError
    ConfigError             the arguments are wrong; nothing was started
        ShippingError       your function cannot be sent to the executors
        UnknownNameError    a keyword argument or Param that does not exist, probably misspelt
    ClusterError            Spark cannot provide what the run needs
        StartTimeoutError   not all nodes joined before the deadline
        EncryptionError     the session requires encryption, which this traffic does not have
    NodeError               a node did not finish
        NodeFailedError     your function raised on a node
        NodeLostError       a node exited without reporting a result: killed, crashed, or its executor was lost
    RunCancelledError       the Spark job was cancelled while the nodes ran
    PeerError               a rank did not answer the others during training, or failed to authenticate
    DataError               rows that cannot be converted to tensors as requested
    ModelError              a model that cannot be trained or scored as requested
    StorageError            a path that cannot be read or written
    StreamError             a stream that does not continue the training that is stored
        SupersededError     another driver has taken over this stream's training
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any


class FailureCause(StrEnum):
    """Why a node did not finish, where the driver acts on it."""

    OTHER = "other"
    """The driver does nothing in particular: the error itself says why."""
    TASK_GONE = "task_gone"
    """The Spark task exited without reporting a result; Spark may yet say why."""
    DRIVER_UNREACHABLE = "driver_unreachable"
    """The task could not connect to the driver."""
    FUNCTION_NOT_FETCHED = "function_not_fetched"
    """The task could not fetch your function from the driver."""
    BARRIER_REFUSED = "barrier_refused"
    """Spark allocates executors dynamically, and starts no barrier stage."""


class EmberflowError(Exception):
    """Base of all errors of Emberflow: a problem, and a fix.

    Attributes:
        problem: What was expected, and what was received.
        fix: What to change.
        is_transient: Whether the same run may succeed later, for example when storage could not be reached.
        cause: Why, where the driver acts on it.
        results: Of `ef.run_parallel` only, one per task: its `ef.Result`, or None if it did not complete.
    """

    is_transient: bool = False
    cause: FailureCause = FailureCause.OTHER
    results: tuple[Any, ...] = ()

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(problem, fix)
        self.problem = problem
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.problem}\nFix: {self.fix}"

    def reword(self, problem: str, fix: str) -> None:
        """Say the same in the words of a caller whose users type other names."""
        self.problem, self.fix = self.args = (problem, fix)


class ConfigError(EmberflowError, ValueError):
    """The arguments are wrong; nothing was started."""


class ShippingError(ConfigError):
    """Your function cannot be sent to the executors; nothing was started."""


class UnknownNameError(ConfigError, TypeError):
    """A keyword argument or Param that does not exist, probably misspelt; nothing was started."""


class ClusterError(EmberflowError):
    """Spark cannot provide what the run needs."""


class StartTimeoutError(ClusterError):
    """Not all nodes joined before the deadline."""


class EncryptionError(ClusterError):
    """The session requires encryption, which this traffic does not have."""


class NodeError(EmberflowError):
    """A node did not finish.

    Attributes:
        rank: The node's global number.
        role: Its role: chief, worker, ps or evaluator.
        host: The host that it ran on, as Spark names it.
        log_tail: The last lines it printed.
        others: The errors of other nodes that followed from it, one line each.
    """

    def __init__(
        self,
        problem: str,
        fix: str,
        *,
        rank: int = -1,
        role: str = "worker",
        host: str = "",
        log_tail: str = "",
        others: Sequence[str] = (),
    ) -> None:
        super().__init__(problem, fix)
        self.rank = rank
        self.role = role
        self.host = host
        self.log_tail = log_tail
        self.others = tuple(others)

    def __str__(self) -> str:
        tail = f"\nLast lines of its log:\n{self.log_tail.rstrip()}" if self.log_tail.strip() else ""
        return f"{self.problem}{tail}\nFix: {self.fix}"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class NodeFailedError(NodeError):
    """Your function raised on a node.

    Attributes:
        remote_traceback: The traceback on that node, from your own first frame on.
        exception_type: The name of the exception's class, such as ``ValueError``.
        is_collateral: Whether it is probably the consequence of another node's end.
    """

    remote_traceback: str = ""
    exception_type: str = ""
    is_collateral: bool = False


class NodeLostError(NodeError):
    """A node exited without reporting a result: it was killed, it crashed, or its executor was lost."""


class RunCancelledError(EmberflowError):
    """The Spark job was cancelled while the nodes ran."""


class PeerError(EmberflowError):
    """A rank did not answer the others during training, or failed to authenticate with the run's key."""


class DataError(EmberflowError, ValueError):
    """Rows that cannot be converted to tensors as requested."""


class ModelError(EmberflowError, ValueError):
    """A model that cannot be trained or scored as requested."""


class StorageError(EmberflowError, OSError):
    """A path that cannot be read or written."""

    def __str__(self) -> str:  # OSError would print two arguments as an error number and a text
        return f"{self.problem}\nFix: {self.fix}"


class StreamError(EmberflowError):
    """A stream that does not continue the training that is stored: rows would be trained on twice, or never."""


class SupersededError(StreamError):
    """Another driver has taken over this stream's training; this one may not store any more."""


def _rebuild(kind: type[NodeError], args: tuple[str, str], state: dict[str, object]) -> NodeError:
    error = kind(*args)
    error.__dict__.update(state)
    return error
