"""How a node ended, as data that travels: by the driver's wire, by Spark's rows, or in an error's text."""

import json
import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from emberflow._plan.roles import Node
from emberflow.errors import (
    ClusterError,
    ConfigError,
    DataError,
    EmberflowError,
    NodeFailedError,
    NodeLostError,
    PeerError,
    StorageError,
)

Ending = Literal["returned", "raised", "lost", "refused", "undelivered"]

GONE = "its Spark task ended without a word: the executor or its Python worker was killed"
REFUSALS = {kind.__name__: kind for kind in (ConfigError, DataError, PeerError, StorageError)}
# What a value's way can lack so that another attempt would end alike; anything else is a lost node.
UNDELIVERED = {kind.__name__: kind for kind in (ClusterError, StorageError)}

# What a node says of itself when another node is the cause.
COLLATERAL = frozenset(
    {
        "PeerError",
        "UnavailableError",
        "AbortedError",
        "CancelledError",
        "ConnectionError",
        "ConnectionResetError",
    }
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one node ended.

    Attributes:
        ending: "returned"; "raised" by your function; "lost" without a word; "refused" to start at all;
            "undelivered" if your function returned, but its value did not get to the driver.
        problem: What happened, in one or more lines; for "raised" the traceback.
        fix: What to do, where it is known; "" takes the usual sentence.
        exception_type: The class's name: of your function's exception, or of our own when it was refused.
        is_transient: Whether it was refused for a reason that may pass, such as storage that cannot be reached.
        goes_on: Whether the others can go on without it.
        value_bytes: Size of the pickled value.
        value_way: How it gets to the driver: "rows", "driver" over a connection, or "storage".
        value_mac: What proves that a stored value is the node's own.
        gpus: What was seen of the node's own GPUs, one dictionary each.
        feed: Rows and bytes that were fed to it, and who waited for whom.
        metrics: What it reported, where no wire brought that to the driver before.
    """

    rank: int
    role: str
    index: int
    host: str
    ending: Ending
    problem: str = ""
    fix: str = ""
    exception_type: str = ""
    is_transient: bool = False
    goes_on: bool = False
    seconds: float = 0.0
    devices: tuple[str, ...] = ()
    log_tail: str = ""
    value_bytes: int = 0
    value_way: str = "rows"
    value_mac: str = ""
    gpus: tuple[dict[str, Any], ...] = ()
    feed: dict[str, Any] = field(default_factory=dict)
    metrics: tuple[dict[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """The node as people see it."""
        return f"{self.role} {self.rank}"

    @property
    def is_collateral(self) -> bool:
        """Whether this looks like the consequence of another node's end."""
        return self.ending == "raised" and self.exception_type in COLLATERAL

    def to_json(self) -> str:
        """Return all of it as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Outcome":
        """Return what `to_json` wrote."""
        fields = json.loads(text)
        return cls(**fields | {name: tuple(fields[name]) for name in ("devices", "gpus", "metrics")})

    def error(self, others: tuple[str, ...] = ()) -> EmberflowError:
        """Return the error to raise on the driver."""
        where = f"{self.name.capitalize()} on {self.host}"
        if self.ending == "refused":
            kind = REFUSALS.get(self.exception_type, ClusterError)
            refused = kind(f"{where} could not run: {self.problem.rstrip()}", fix=self.fix)
            refused.is_transient = self.is_transient
            return refused
        if self.ending == "undelivered" and self.exception_type in UNDELIVERED:
            told = f"{where} could not deliver what your function returned: {self.problem.rstrip()}"
            return UNDELIVERED[self.exception_type](told, fix=self.fix)
        known = {"rank": self.rank, "role": self.role, "host": self.host, "others": others}
        if self.ending == "raised":
            failed = NodeFailedError(
                f"{where} failed. Your function raised:\n{self.problem.rstrip()}",
                fix=self.fix or "Mend the function; run it with workers=1 to debug it alone.",
                log_tail=self.log_tail,
                **known,  # type: ignore[arg-type]
            )
            failed.remote_traceback = self.problem
            failed.exception_type = self.exception_type
            failed.is_collateral = self.is_collateral
            return failed
        did = "could not deliver what your function returned" if self.ending == "undelivered" else "was lost"
        return NodeLostError(
            f"{where} {did}: {self.problem.rstrip()}",
            fix=self.fix or "Look at the executor's log on that host.",
            log_tail=self.log_tail,
            **known,  # type: ignore[arg-type]
        )


def outcome_of(
    node: Node, host: str, ending: Ending, *, problem: str, fix: str, exception_type: str = ""
) -> Outcome:
    """Return the outcome of a node of which no more is known than how it ended."""
    return Outcome(
        rank=node.rank,
        role=node.role,
        index=node.index,
        host=host,
        ending=ending,
        problem=problem,
        fix=fix,
        exception_type=exception_type,
    )


def gone_outcome(node: Node, host: str, problem: str = GONE) -> Outcome:
    """Return the outcome of a node whose Spark task ended before it told anything."""
    return outcome_of(
        node,
        host,
        "lost",
        problem=problem,
        fix="Look at the executor's log and at Spark's list of lost executors; if memory ran out, raise "
        "spark.executor.memoryOverhead.",
    )


def error_of(failures: Sequence[Outcome]) -> EmberflowError:
    """Return the one error to raise: the first failure that is not the consequence of another."""
    causes = [outcome for outcome in failures if not outcome.is_collateral]
    cause = (causes or failures)[0]
    others = tuple(
        f"{other.name} on {other.host}: {other.problem.strip().splitlines()[-1]}"
        for other in failures
        if other.rank != cause.rank and other.problem.strip()
    )
    return cause.error(others)


def undelivered_outcome(node: Node, host: str, event: Mapping[str, str]) -> Outcome:
    """Return the outcome of a node whose value the driver could not take in."""
    return outcome_of(
        node,
        host,
        "undelivered",
        problem=event["undelivered"],
        fix=event["fix"],
        exception_type=event["error"],
    )


def describe_exit(status: int | None) -> tuple[str, str]:
    """Return what an exit status means, and what to do about it.

    >>> describe_exit(-9)[0]
    'its process was killed by SIGKILL'
    """
    if status is None:
        return "its process had to be ended", "Look at the executor's log on that host."
    if status == -signal.SIGKILL:
        return (
            "its process was killed by SIGKILL",
            "If nobody killed it the host ran out of memory: raise spark.executor.memoryOverhead, or use less.",
        )
    if status == -signal.SIGBUS:
        return (
            "its process was ended by SIGBUS: a file that it had mapped could not be read",
            "Rows are mapped from local disk: check that disk for errors (dmesg), or pass spool_dir= on another one.",
        )
    if status < 0:
        return (
            f"its process was ended by {_signal_name(-status)}",
            "A crash of native code: look at the last lines of its log.",
        )
    return (
        f"its process exited with status {status} before your function returned",
        "Let the function return or raise; os._exit ends the node without a word.",
    )


def describe_stop(limit: float) -> tuple[str, str]:
    """Return what it means that a node gave no sign of life for so many seconds, and what to do about it."""
    return (
        f"its process has not answered for {limit:g} s (exchange_timeout), as if it was stopped, and had to be ended",
        "See who stopped it (SIGSTOP, a debugger) and whether its host swaps, or raise exchange_timeout.",
    )


def _signal_name(number: int) -> str:
    """Return the signal's name; real-time signals have none in Python."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
