"""Every error this library raises on purpose.

EmberflowError
    ConfigError             the arguments are wrong; nothing was started
        ShippingError       your function cannot be sent to the executors
    ClusterError            Spark cannot give what the run needs
        StartTimeoutError   not all nodes were up before the deadline
        EncryptionError     the session asks for encryption that this traffic does not have
    NodeError               a node did not finish
        NodeFailedError     your function raised on a node
        NodeLostError       a node ended without a word: killed, crashed, or its executor went away
    RunCancelledError       the Spark job was cancelled while the nodes ran
    PeerError               a rank did not answer the others during training
    DataError               rows that cannot be given to TensorFlow as asked
    ModelError              a model that cannot be trained or scored as asked
    StorageError            a path that cannot be read or written
"""

from collections.abc import Sequence


class EmberflowError(Exception):
    """Base of all our errors: what is wrong, and what to do about it.

    Attributes:
        is_transient: Whether the same run may succeed later, such as when storage could not be reached.
    """

    is_transient: bool = False

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(problem, fix)
        self.problem = problem
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.problem}\nFix: {self.fix}"


class ConfigError(EmberflowError, ValueError):
    """The arguments are wrong; nothing was started."""


class ShippingError(ConfigError):
    """Your function cannot be sent to the executors; nothing was started."""


class ClusterError(EmberflowError):
    """Spark cannot give what the run needs."""


class StartTimeoutError(ClusterError):
    """Not all nodes were up before the deadline."""


class EncryptionError(ClusterError):
    """The session asks for encryption that this traffic does not have."""


class NodeError(EmberflowError):
    """A node did not finish.

    Attributes:
        rank: The node's global number.
        role: What it was: chief, worker, ps or evaluator.
        host: Where it ran, as Spark names it.
        log_tail: The last lines it printed.
        others: What the other nodes said because of it, one line each.
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
        remote_traceback: The traceback there, from your own first frame on.
        exception_type: The name of the exception's class, such as ``ValueError``.
        is_collateral: Whether it looks like the consequence of another node's end.
    """

    remote_traceback: str = ""
    exception_type: str = ""
    is_collateral: bool = False


class NodeLostError(NodeError):
    """A node ended without a word: killed, crashed, or its executor went away."""


class RunCancelledError(EmberflowError):
    """The Spark job was cancelled while the nodes ran."""


class PeerError(EmberflowError):
    """A rank did not answer the others during training, or could not prove that it holds the run's key."""


class DataError(EmberflowError, ValueError):
    """Rows that cannot be given to TensorFlow as asked."""


class ModelError(EmberflowError, ValueError):
    """A model that cannot be trained or scored as asked."""


class StorageError(EmberflowError, OSError):
    """A path that cannot be read or written."""

    def __str__(self) -> str:  # OSError has its own idea of two arguments
        return f"{self.problem}\nFix: {self.fix}"


def _rebuild(kind: type[NodeError], args: tuple[str, str], state: dict[str, object]) -> NodeError:
    error = kind(*args)
    error.__dict__.update(state)
    return error
