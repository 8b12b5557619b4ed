"""The Spark jobs of a live cluster: each has a tag by which it can be ended, and errors that say what happened."""

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from emberflow import errors
from emberflow._driver.cluster_facts import ClusterFacts
from emberflow._driver.feeding_state import FeedingState
from emberflow._driver.spark_errors import is_interrupted, translate
from emberflow._plan import deadlines
from emberflow.errors import EmberflowError, NodeLostError, RunCancelledError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Value = TypeVar("Value")

OWN_ERROR = re.compile(r"emberflow\.errors\.(\w+): (.+?)\nFix: ([^\n]+)", re.DOTALL)


class FeedingJobs:
    """Runs jobs on the threads of their callers, so that Spark's settings of these threads hold for them."""

    def __init__(self, spark: "SparkSession", facts: ClusterFacts, state: FeedingState) -> None:
        self._spark = spark
        self._facts = facts
        self._state = state
        self._running: set[str] = set()

    def run(self, tag: str, compute: Callable[[], Value]) -> Value:
        """Return what the job brings; raise the cluster's error if that is why the job failed."""
        with self._state.changed:
            self._state.check()
            self._running.add(tag)
            ended = self._state.ended
        try:
            with self._tagged(tag):
                return compute()
        except EmberflowError:
            raise
        except Exception as error:
            raise self._meaning(error, ended) from error
        except BaseException:  # Ctrl-C: nobody waits for its tasks any more
            self.cancel(tag)
            raise
        finally:
            with self._state.changed:
                self._running.discard(tag)

    def cancel(self, tag: str) -> None:
        """Have Spark end the tasks of a job."""
        with contextlib.suppress(Exception):  # a session that is gone has no tasks either
            if self._facts.is_connect:
                self._spark.interruptTag(tag)
            else:
                self._spark.sparkContext.cancelJobsWithTag(tag)

    def cancel_later(self, *tags: str) -> None:
        """Have Spark end the tasks of these jobs, or of all, without waiting for Spark."""
        with self._state.changed:
            wanted = tags or tuple(self._running)
        for tag in wanted:
            threading.Thread(target=self.cancel, args=(tag,), name="emberflow-cancel", daemon=True).start()

    @contextlib.contextmanager
    def _tagged(self, tag: str) -> Iterator[None]:
        owner: Any = self._spark if self._facts.is_connect else self._spark.sparkContext
        kind = "Tag" if self._facts.is_connect else "JobTag"
        getattr(owner, f"add{kind}")(tag)
        try:
            yield
        finally:
            with contextlib.suppress(Exception):  # of a session that was stopped
                getattr(owner, f"remove{kind}")(tag)

    def _meaning(self, error: Exception, ended: frozenset[int]) -> EmberflowError:
        """Return what Spark's error means; a cluster that is over is the cause of everything else."""
        own = own_error(str(error))
        if isinstance(own, NodeLostError):
            with self._state.changed:
                self._state.changed.wait_for(
                    lambda: self._state.error is not None or self._state.ended != ended,
                    deadlines.FEED_FAILURE_SETTLE,
                )
        if self._state.error is not None:
            return self._state.error
        if own is not None:
            return own
        if is_interrupted(error):
            cancelled = translate(error)
            if isinstance(cancelled, RunCancelledError):
                return RunCancelledError(
                    "The Spark job that fed the cluster was cancelled; the nodes run on, and were given none of its "
                    "rows that were not complete.",
                    fix="Call it again; if you did not cancel it, look at the Spark UI's list of failed jobs.",
                )
            return cancelled
        return translate(error, waits_for_rows=True)


def own_error(text: str) -> EmberflowError | None:
    r"""Return the error of Emberflow that a task raised, from Spark's text.

    >>> type(own_error("... emberflow.errors.DataError: bad rows\nFix: good ones\n ...")).__name__
    'DataError'
    """
    for name, problem, fix in OWN_ERROR.findall(text):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, EmberflowError):
            return kind(problem, fix)
    return None


def refusal_error(text: str) -> EmberflowError:
    """Return the error that a node refused rows with, from the row in which its task reports it."""
    kind, problem, fix = json.loads(text)
    error: EmberflowError = getattr(errors, kind, errors.ClusterError)(problem, fix)
    return error
