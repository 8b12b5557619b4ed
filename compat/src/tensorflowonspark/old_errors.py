"""Errors with the types and texts that programs for TensorFlowOnSpark catch.

The old library raised `Exception` and failed assertions; programs look at the text. Each error here says that text
first, and then what to change.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from emberflow.errors import ClusterError, ConfigError, DataError, EmberflowError, NodeFailedError


class UsageError(ConfigError, AssertionError):
    """A call that the old library refused by an assertion."""


class FeedTimeoutError(ClusterError, TimeoutError):
    """A node took no rows for too long."""


class WorkerError(NodeFailedError):
    """Your function raised on a node."""


class ResultsError(DataError):
    """The results of an inference are not one per row."""


@dataclass(frozen=True)
class NoResults:
    """Travels instead of results: why there are none."""

    problem: str
    fix: str


class DeprecatedError(ConfigError):
    """A name that TensorFlowOnSpark 2 had removed for TensorFlow 2 already."""


class ReservationError(ClusterError):
    """Nodes did not register, or not as expected."""


class StandaloneNodeError(ClusterError):
    """A node that a program started by `TFSparkNode` itself."""


class GpuError(ClusterError):
    """There are fewer GPUs than a node wants."""


@contextmanager
def executors_named(others: int = 0) -> Iterator[None]:
    """Let the fix of an error name `num_executors`, and what else old programs pass.

    Args:
        others: Nodes that `num_executors` counts and Emberflow's `workers` does not.
    """
    try:
        yield
    except EmberflowError as error:
        error.reword(error.problem, _in_old_words(error.fix, others))
        raise


def _in_old_words(fix: str, others: int = 0) -> str:
    """Return what to do in the names of the old library.

    >>> _in_old_words("Pass workers=2 or fewer.", others=1)
    'Pass num_executors=3 or fewer.'
    """
    counted = re.sub(r"\bworkers=(\d+)", lambda found: f"num_executors={int(found[1]) + others}", fix)
    for new, old in (
        ("tasks=", "num_executors="),
        ("barrier=", "use_barrier="),
        ("raise executor_timeout", "run it again"),
    ):
        counted = re.sub(rf"(?<!\w){new}", old, counted)
    return counted


def worker_error(error: NodeFailedError, where: str) -> WorkerError:
    """Return the error of a node as the old library told it."""
    found = WorkerError(f"Exception in {where}:\n{error.problem}", _in_old_words(error.fix))
    found.__dict__.update(
        {name: value for name, value in vars(error).items() if name not in ("problem", "fix")}
    )
    return found


@contextmanager
def worker_errors() -> Iterator[None]:
    """Raise the error of a node, from inside the block, as the old library told it."""
    try:
        yield
    except NodeFailedError as error:
        where = error.role if error.role in ("ps", "evaluator") else "worker"
        raise worker_error(error, where) from error


def feed_timeout_error(seconds: float, where: str) -> FeedTimeoutError:
    """Return the error of rows that nobody takes."""
    return FeedTimeoutError(
        f"Timeout while feeding partition: {where} for {seconds:g} s (feed_timeout).",
        fix="Call next_batch until should_stop, or terminate() when enough rows were taken; for slow steps pass a "
        "longer feed_timeout.",
    )
