"""What a task reports of its node: its metrics, and how it ended.

An outcome reaches the driver as a message, in Spark's rows, or inside the text of an error of Spark.
"""

import json
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from emberflow._plan.plan import RunPlan
from emberflow._plan.roles import Node
from emberflow._protocol.codec import Message, read, to_json
from emberflow.errors import (
    ClusterError,
    ConfigError,
    DataError,
    EmberflowError,
    FailureCause,
    ModelError,
    NodeFailedError,
    NodeLostError,
    PeerError,
    StorageError,
)

TASK_GONE = "its Spark task exited without reporting a result: the executor or its Python worker was killed"
ATTENDANT_GONE = (
    "its attendant, the process beside the executor that runs it, exited without reporting a result"
)
MANAGED_GONE = (
    "its task ended without reporting a result: its process or container was killed, or its host is gone"
)
MANAGED_FIX = (
    "See what the cluster manager says of that task, and its log; if memory ran out, raise `memory` of its role. The "
    "next start continues from the last checkpoint."
)
REFUSALS = {kind.__name__: kind for kind in (ConfigError, DataError, ModelError, PeerError, StorageError)}
# Errors of delivering a value that another attempt would raise again; anything else is a lost node.
UNDELIVERED = {kind.__name__: kind for kind in (ClusterError, StorageError)}

# Exceptions that a node raises when another node is the cause.
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
# Surrounds an outcome inside the text of an exception, which Spark quotes in its own.
_MARK = "EMBERFLOW-OUTCOME:"


class Ending(StrEnum):
    """How a node ended."""

    RETURNED = "returned"
    """Your function returned."""
    RAISED = "raised"
    """Your function raised."""
    LOST = "lost"
    """The process exited without reporting a result, or had to be killed."""
    REFUSED = "refused"
    """The node could not start at all."""
    UNDELIVERED = "undelivered"
    """Your function returned, but its value did not reach the driver."""


class ValueRoute(StrEnum):
    """How the value of a node gets to the driver."""

    ROWS = "rows"
    """As rows of the Spark job."""
    DRIVER = "driver"
    """Over a connection of its own."""
    STORAGE = "storage"
    """By a file in the checkpoint folder."""


@dataclass(frozen=True)
class MetricReport(Message):
    """Node to task to driver: one call of ``ctx.report``.

    Attributes:
        values: Name to number.
        step: The step they belong to, if your function named one.
        seconds: Seconds since your function was called.
    """

    values: dict[str, float]
    step: int | None
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Outcome(Message):
    """Task to driver: how one node ended.

    Attributes:
        ending: How.
        cause: Why, where the driver acts on it.
        problem: What happened, in one or more lines; for `Ending.RAISED` the traceback.
        fix: What to do, where it is known; "" takes the usual sentence.
        exception_type: The class's name: of your function's exception, or of Emberflow's error when it was refused.
        is_transient: Whether it was refused for a reason that may pass, such as storage that cannot be reached.
        is_tolerable: Whether the run can continue without it.
        value_bytes: Size of the pickled value.
        value_route: How it gets to the driver.
        value_mac: What proves that a stored value is the node's own.
        gpus: What was seen of the node's own GPUs, one dictionary each.
        feed: Rows and bytes that were fed to it, and which side waited for the other.
        metrics: What it reported, where no connection to the driver has sent it before.
    """

    rank: int
    role: str
    index: int
    host: str
    ending: Ending
    cause: FailureCause = FailureCause.OTHER
    problem: str = ""
    fix: str = ""
    exception_type: str = ""
    is_transient: bool = False
    is_tolerable: bool = False
    seconds: float = 0.0
    devices: tuple[str, ...] = ()
    log_tail: str = ""
    value_bytes: int = 0
    value_route: ValueRoute = ValueRoute.ROWS
    value_mac: str = ""
    gpus: tuple[dict[str, Any], ...] = ()
    feed: dict[str, Any] = field(default_factory=dict)
    metrics: tuple[MetricReport, ...] = ()

    @property
    def name(self) -> str:
        """The node as people see it."""
        return f"{self.role} {self.rank}"

    @property
    def is_collateral(self) -> bool:
        """Whether this looks like the consequence of another node's end."""
        return self.ending is Ending.RAISED and self.exception_type in COLLATERAL

    def to_json(self) -> str:
        """Return all of it as text."""
        return to_json(self)

    @classmethod
    def from_json(cls, text: str) -> "Outcome":
        """Return what `to_json` wrote."""
        return read(cls, json.loads(text))

    def to_error_text(self) -> str:
        """Return all of it as the text of an exception, from which `outcome_in` reads it again."""
        return f"{_MARK}{self.to_json()}{_MARK}"

    def error(self, others: tuple[str, ...] = ()) -> EmberflowError:
        """Return the error to raise on the driver."""
        error = self._error(others)
        error.cause = self.cause
        return error

    def _error(self, others: tuple[str, ...]) -> EmberflowError:
        where = f"{self.name.capitalize()} on {self.host}"
        if self.ending is Ending.REFUSED:
            kind = REFUSALS.get(self.exception_type, ClusterError)
            refused = kind(f"{where} could not run: {self.problem.rstrip()}", fix=self.fix)
            refused.is_transient = self.is_transient
            return refused
        if self.ending is Ending.UNDELIVERED and self.exception_type in UNDELIVERED:
            problem = f"{where} could not deliver what your function returned: {self.problem.rstrip()}"
            return UNDELIVERED[self.exception_type](problem, fix=self.fix)
        known = {"rank": self.rank, "role": self.role, "host": self.host, "others": others}
        if self.ending is Ending.RAISED:
            failed = NodeFailedError(
                f"{where} failed. Your function raised:\n{self.problem.rstrip()}",
                fix=self.fix or "Correct the function; run it with workers=1 to debug it alone.",
                log_tail=self.log_tail,
                **known,  # type: ignore[arg-type]
            )
            failed.remote_traceback = self.problem
            failed.exception_type = self.exception_type
            failed.is_collateral = self.is_collateral
            return failed
        is_undelivered = self.ending is Ending.UNDELIVERED
        did = "could not deliver what your function returned" if is_undelivered else "was lost"
        return NodeLostError(
            f"{where} {did}: {self.problem.rstrip()}",
            fix=self.fix or "Look at the executor's log on that host.",
            log_tail=self.log_tail,
            **known,  # type: ignore[arg-type]
        )


def outcome_in(text: str) -> Outcome | None:
    """Return the outcome inside the text of an error, if a task has put one there."""
    found = re.search(f"{_MARK}(.+?){_MARK}", text, re.DOTALL)
    return Outcome.from_json(found[1]) if found else None


def outcome_of(
    node: Node,
    host: str,
    ending: Ending,
    *,
    problem: str,
    fix: str,
    exception_type: str = "",
    cause: FailureCause = FailureCause.OTHER,
) -> Outcome:
    """Return the outcome of a node of which no more is known than how it ended."""
    return Outcome(
        rank=node.rank,
        role=node.role,
        index=node.index,
        host=host,
        ending=ending,
        cause=cause,
        problem=problem,
        fix=fix,
        exception_type=exception_type,
    )


def gone_outcome(plan: RunPlan, rank: int, host: str) -> Outcome:
    """Return the outcome of a node whose task, or attendant, exited without reporting a result."""
    if plan.launch == "manager":
        problem, fix = MANAGED_GONE, MANAGED_FIX
    else:
        problem, fix = ATTENDANT_GONE if plan.is_live else TASK_GONE, ""
    return lost_outcome(plan.nodes[rank], host, problem=problem, fix=fix, cause=FailureCause.TASK_GONE)


def lost_outcome(
    node: Node, host: str, *, problem: str, fix: str = "", cause: FailureCause = FailureCause.OTHER
) -> Outcome:
    """Return the outcome of a node that the driver itself found to be lost."""
    usual = (
        "Look at the executor's log and at Spark's list of lost executors; if memory ran out, raise "
        "spark.executor.memoryOverhead."
    )
    return outcome_of(node, host, Ending.LOST, problem=problem, fix=fix or usual, cause=cause)


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
            "If you did not kill it, the host ran out of memory: raise spark.executor.memoryOverhead, or use less.",
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
        "Let the function return or raise; os._exit ends the node without a result.",
    )


def describe_stop(limit: float) -> tuple[str, str]:
    """Return what it means that a node has not answered for so many seconds, and what to do about it."""
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
