"""The Spark job of one attempt, on a thread of its own; the one place that translates Spark's errors."""

import contextlib
import dataclasses
import functools
import queue
import re
import sys
import threading
from typing import TYPE_CHECKING, Any

from emberflow._driver.cluster_facts import ClusterFacts
from emberflow._driver.interpreter import DRIVER_PYTHON, executors_python, map_in_arrow
from emberflow._driver.profiles import profile_of
from emberflow._driver.row_routing import RunData, arrow_batches_by_bytes, directed_rows
from emberflow._plan.stages import Stage
from emberflow._protocol.frames import Message
from emberflow._protocol.outcome import Outcome
from emberflow._task.node_task import MARK, OUTPUT_SCHEMA, TaskSpec, run_task
from emberflow.errors import ClusterError, DataError, EmberflowError, NodeLostError, RunCancelledError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Job:
    """Runs one task per node, in one stage or two, and puts what came of it into `events`.

    Events: ``rows`` when Spark brought them all back; ``job_error`` with the exception and the first rank of the
    stage that it ended; on Spark Connect ``tasks_running`` with their number, since no other sign of life may come.
    """

    def __init__(
        self,
        spark: "SparkSession",
        spec: TaskSpec,
        data: RunData,
        facts: ClusterFacts,
        events: "queue.Queue[Message]",
    ) -> None:
        self._spark = spark
        self._data = data
        self._spec = spec
        self._facts = facts
        self._events = events
        self._tag = f"emberflow-{spec.plan.run_id}-{spec.plan.attempt}"
        self._lock = threading.Lock()
        self._rows: list[Any] = []
        self._waiting = list(spec.plan.stages)
        self._running = list(spec.plan.stages)

    def start(self) -> None:
        """Submit a job for the first stage; with a second one, Spark runs them side by side."""
        self.go_on(0)

    def go_on(self, joined: int) -> None:
        """Submit the stage that comes next, once all nodes before it have joined.

        Workers with GPUs come first: nodes without could take the cores beside the GPUs, and keep them.
        """
        while self._waiting and self._waiting[0].first_rank <= joined:
            stage = self._waiting.pop(0)
            name = f"{self._tag}-{stage.first_rank}"
            threading.Thread(target=self._run, args=(stage,), name=name, daemon=True).start()

    def cancel(self) -> None:
        """Have Spark end the tasks."""
        with contextlib.suppress(Exception):  # a session that is gone has no tasks either
            if self._facts.is_connect:
                self._spark.interruptTag(self._tag)
            else:
                self._spark.sparkContext.cancelJobsWithTag(self._tag)

    def _run(self, stage: Stage) -> None:
        try:
            if self._facts.is_connect:
                with _progress(self._spark, self._events):
                    self._spark.addTag(self._tag)  # per thread, so it ends with this one
                    rows = self._collect(stage)
            else:
                context = self._spark.sparkContext
                context.addJobTag(self._tag)
                context.setInterruptOnCancel(True)
                context.setLocalProperty("spark.job.description", f"emberflow {self._spec.plan.run_id}")
                rows = self._collect(stage)
        except Exception as error:  # noqa: BLE001 - whatever Spark raised; the attempt judges it
            self._events.put({"job_error": error, "first_rank": stage.first_rank})
            return
        with self._lock:
            self._rows += rows
            self._running.remove(stage)
            if not self._running:
                self._events.put({"rows": self._rows})

    def _collect(self, stage: Stage) -> list[Any]:
        trainers = sum(node.trains for node in self._spec.plan.nodes)
        with contextlib.ExitStack() as held:
            if self._data.frames and stage.first_rank == 0:
                held.enter_context(arrow_batches_by_bytes(self._spark))
                seats = directed_rows(self._data, stage, trainers)
            else:
                seats = self._spark.range(0, stage.ranks, 1, stage.ranks)
            return self._run_tasks(seats, stage)

    def _run_tasks(self, seats: "DataFrame", stage: Stage) -> list[Any]:
        task = functools.partial(run_task, dataclasses.replace(self._spec, first_rank=stage.first_rank))
        profile = profile_of(stage, self._facts)
        return map_in_arrow(seats, task, OUTPUT_SCHEMA, barrier=True, profile=profile).collect()


@contextlib.contextmanager
def _progress(spark: Any, events: "queue.Queue[Message]") -> Any:
    def handler(*, inflight_tasks: int = 0, **_: Any) -> None:
        if inflight_tasks:
            events.put({"tasks_running": inflight_tasks})

    spark.registerProgressHandler(handler)
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)


def outcome_in(error: BaseException) -> Outcome | None:
    """Return the outcome that a task put into its own exception, if there is one in Spark's text."""
    found = re.search(f"{MARK}(.+?){MARK}", str(error), re.DOTALL)
    return Outcome.from_json(found[1]) if found else None


def lost_task_in(error: BaseException) -> tuple[int, str] | None:
    """Return the partition whose task failed first, if Spark's text names one, and why: "" where it was killed."""
    found = LOST_TASK.search(str(error))
    if found is None or WRONG_PYTHON.search(str(error)):  # no node was started: `translate` says why
        return None
    return int(found[1]), "" if KILLED.search(found[2]) else found[2]


MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
STOPPED = r"SparkContext was shut down|SparkContext has been shutdown|stopped SparkContext"
# What Spark says, and what it means for the user: the first match counts.
TRANSLATIONS: tuple[tuple[str, str, str], ...] = (
    (
        r"No module named '(emberflow|cloudpickle|pyarrow)[^']*'",
        "The executors' Python ({executors}) has no module {0}. Received: the driver's Python {driver}.",
        "{name_python}",
    ),
    (
        r"PACKAGE_NOT_INSTALLED\] (\w+) >= ([\d.]+)",
        "Spark needs the package {0}, version {1} or newer, on the driver and on every executor.",
        "pip install emberflow into the Python of the driver and of the executors: it brings all of these.",
    ),
    (
        r"PYTHON_VERSION_MISMATCH\](?:[^\n]*?version: (\d[\d.]*\d))?",
        (
            "Executors and driver run different versions of Python. "
            "Received: Python {0} on executors, the driver's Python {driver}."
        ),
        (
            "Before the session starts, name a Python {minor} of the executors: "
            "export PYSPARK_PYTHON=/path/on/executors/bin/python{minor}"
        ),
    ),
    (
        r"Cannot run program \"([^\"]+)\"",
        "The executors cannot start {0} as their Python. Received: the driver's Python {driver}.",
        (
            "Before the session starts, name a Python that exists on every executor: "
            "export PYSPARK_PYTHON=/path/on/executors/bin/python"
        ),
    ),
    (
        r"SPARK-24819|BARRIER_STAGE_WITH_INSUFFICIENT_SLOTS|require more slots",
        "Spark cannot start all nodes at the same time: it has too few task slots.",
        "Pass fewer workers, or start the session with more executors or cores.",
    ),
    (
        r"SPARK-24942|dynamic resource allocation",
        "Spark refuses barrier stages under dynamic allocation.",
        "Start the session with spark.dynamicAllocation.enabled=false.",
    ),
    (
        r"spark\.driver\.maxResultSize",
        "What your function returned is larger than Spark lets a job bring back (spark.driver.maxResultSize).",
        "Save large values to storage and return the path, or raise spark.driver.maxResultSize.",
    ),
    (
        STOPPED,
        "The Spark session was stopped while the nodes ran.",
        "Keep the session until run has returned.",
    ),
)
LACKING = re.compile(r"(The executors' Python \S+ \([^\n]+)\nFix: ([^\n]+)")  # what a task says of its Python
WRONG_PYTHON = re.compile("|".join([LACKING.pattern, *(pattern for pattern, _, _ in TRANSLATIONS[:4])]))
LOST = re.compile(r"ExecutorLostFailure[^\n]*")
LOST_TASK = re.compile(r"barrier task \w+\(\d+, (\d+)\) finished unsuccessfully\.\s+([^\n]+)")
KILLED = re.compile(r"ExecutorLostFailure|Python worker exited unexpectedly")
BARRIER = re.compile(r"barrier task|barrier ResultStage")
FRAMES = re.compile(
    r"(An error occurred while calling \S+\s*: )|^\s+(at |\.\.\. \d+ more).*\n?", re.MULTILINE
)
SAID_LIMIT = 4000  # characters; the cause comes first, and the whole text is the __cause__
CANCELLED = re.compile(
    r"SPARK_JOB_CANCELLED|OPERATION_CANCELED|OPERATION_CANCELLED|cancelled because|was cancelled"
)


def is_called_off(error: Exception | None) -> bool:
    """Tell whether Spark's error says that somebody ended the job: cancelled it, or stopped the session."""
    return error is not None and bool(CANCELLED.search(str(error)) or re.search(STOPPED, str(error)))


def known_error(text: str) -> ClusterError | None:
    """Return what Spark's text means, if it is one of those that we know."""
    if found := LACKING.search(text):
        return ClusterError(found[1], fix=found[2])
    for pattern, problem, fix in TRANSLATIONS:
        if found := re.search(pattern, text):
            groups = [group or "unknown" for group in found.groups()]
            executors, name_python = executors_python()
            return ClusterError(
                problem.format(*groups, driver=DRIVER_PYTHON, executors=executors),
                fix=fix.format(minor=MINOR, name_python=name_python),
            )
    return None


def translate(error: Exception, *, waits_for_rows: bool = False) -> EmberflowError:
    """Return Spark's error as one of ours.

    Args:
        error: What Spark raised.
        waits_for_rows: Whether Spark computed a DataFrame first: what fails before the nodes' stage is its error.
    """
    text = str(error)
    if CANCELLED.search(text) and not re.search(STOPPED, text):
        return RunCancelledError(
            "The Spark job of this run was cancelled while its nodes ran.",
            fix="Run it again; if nobody cancelled it, look at the Spark UI's list of failed jobs.",
        )
    if known := known_error(text):
        return known
    if found := LOST.search(text):
        return NodeLostError(
            f"An executor went away while nodes started there: {found[0]}",
            fix="Look at the executor's log; if memory ran out, raise spark.executor.memoryOverhead.",
        )
    if waits_for_rows and not BARRIER.search(text):
        said = FRAMES.sub("", text).strip()
        return DataError(
            f"Spark could not compute the rows of `data`. Received:\n{said[:SAID_LIMIT]}",
            fix="Correct the DataFrame, its own functions or its files: df.count() fails in the same way. Spark's "
            "whole message is this error's __cause__.",
        )
    first = "\n".join(text.splitlines()[:12])
    return ClusterError(
        f"The Spark job of this run failed:\n{first}",
        fix="Look at the executors' logs; the whole of Spark's message is this error's __cause__.",
    )
