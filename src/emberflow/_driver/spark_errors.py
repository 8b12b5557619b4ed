"""What Spark's own errors mean: the one place that matches the text of Spark."""

import re
import sys
from typing import NamedTuple

from emberflow._driver.interpreter import DRIVER_PYTHON, executors_python
from emberflow.errors import (
    ClusterError,
    DataError,
    EmberflowError,
    FailureCause,
    NodeLostError,
    RunCancelledError,
)

MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
STOPPED = r"SparkContext was shut down|SparkContext has been shutdown|stopped SparkContext"
BARRIER_REFUSED = r"SPARK-24942|dynamic resource allocation"
# The text of Spark, and what it means for the user: the first match counts.
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
        r"PYTHON_VERSION_MISMATCH\](?:[^\n]*?version:? \(?(\d[\d., ]*\d))?",
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
        BARRIER_REFUSED,
        "Spark starts no tasks all at the same time under dynamic allocation.",
        "Leave out barrier=True, or start the session with spark.dynamicAllocation.enabled=false.",
    ),
    (
        r"spark\.driver\.maxResultSize",
        "What your function returned is larger than Spark lets a job bring back (spark.driver.maxResultSize).",
        "Save large values to storage and return the path, or raise spark.driver.maxResultSize.",
    ),
)
MISSING_MODULE = re.compile(
    r"(The executors' Python \S+ \([^\n]+)\nFix: ([^\n]+)"
)  # the text of `interpreter`, from a Python without emberflow
WRONG_PYTHON = re.compile(
    "|".join([MISSING_MODULE.pattern, *(pattern for pattern, _, _ in TRANSLATIONS[:4])])
)
LOST = re.compile(r"ExecutorLostFailure[^\n]*")
# The reasons of YARN and Kubernetes for the end of an executor's container.
CONTAINER = re.compile(r"Reason: ((?:Container|The executor with id|Executor) [^\n]+)")
OUT_OF_MEMORY = re.compile(
    r"(?i)exceeding (?:physical|virtual) memory limits|beyond the '?\w+'? memory limit|OOMKilled|container OOM"
)
OVERHEAD = (
    "Nodes are processes beside the executor's JVM: TensorFlow's memory is the container's overhead, about 1 GB for "
    "each node and more for large models. Start the session with spark.executor.memoryOverhead=2g or more, or "
    "with fewer spark.executor.cores."
)
LOST_TASK = re.compile(r"barrier task \w+\(\d+, (\d+)\) finished unsuccessfully\.\s+([^\n]+)")
LOST_PLAIN_TASK = re.compile(
    r"Task (\d+) in stage \S+ failed \d+ times, most recent failure: Lost task [^:]+\([^:]*\): ([^\n]+)"
)
KILLED = re.compile(r"ExecutorLostFailure|Python worker exited unexpectedly")
BARRIER = re.compile(r"barrier task|barrier ResultStage")
FRAMES = re.compile(
    r"(An error occurred while calling \S+\s*: )|^\s+(at |\.\.\. \d+ more).*\n?", re.MULTILINE
)
TEXT_LIMIT = 4000  # characters; the cause comes first, and the whole text is the __cause__
# Spark's error condition, where Spark, Py4J or Spark Connect begins its text with one, or names it as the cause;
# Spark 3.5 has a sentence in its place.
CANCELLED = re.compile(
    r"(?:\A|^: |^Caused by: )(?:\([\w.$]+\) )?(?:[\w.$]+: )?"
    r"(?:\[(?:SPARK_JOB_CANCELLED|OPERATION_CANCELL?ED)\]|Job \d+ cancelled\b)",
    re.MULTILINE,
)
TRACEBACK = "Traceback (most recent call last):"


def is_interrupted(error: Exception | None) -> bool:
    """Tell whether Spark's error says that the job was cancelled, or the session stopped."""
    return error is not None and (_is_cancelled(str(error)) or _is_stopped(str(error)))


def _is_cancelled(text: str) -> bool:
    return bool(CANCELLED.search(_of_spark(text)))


def _is_stopped(text: str) -> bool:
    return bool(re.search(STOPPED, _of_spark(text)))


def _of_spark(text: str) -> str:
    """Return what Spark itself says: all before a traceback of Python, where a user's own text may say anything."""
    return text.partition(TRACEBACK)[0]


def known_error(text: str) -> ClusterError | None:
    """Return what a text of Spark means, if it is a known one."""
    if found := MISSING_MODULE.search(text):
        return ClusterError(found[1], fix=found[2])
    for pattern, problem, fix in TRANSLATIONS:
        if found := re.search(pattern, text):
            groups = [(group or "unknown").replace(", ", ".") for group in found.groups()]
            executors, name_python = executors_python()
            known = ClusterError(
                problem.format(*groups, driver=DRIVER_PYTHON, executors=executors),
                fix=fix.format(minor=MINOR, name_python=name_python),
            )
            if pattern == BARRIER_REFUSED:
                known.cause = FailureCause.BARRIER_REFUSED
            return known
    return None


def translate(error: Exception, *, waits_for_rows: bool = False) -> EmberflowError:
    """Return Spark's error as one of Emberflow's.

    Args:
        error: What Spark raised.
        waits_for_rows: Whether Spark computed a DataFrame first: what fails before the nodes' stage is its error.
    """
    text = str(error)
    if _is_cancelled(text) and not _is_stopped(text):
        return RunCancelledError(
            "The Spark job of this run was cancelled while its nodes ran.",
            fix="Run it again; if you did not cancel it, look at the Spark UI's list of failed jobs.",
        )
    if known := known_error(text):
        return known
    if _is_stopped(text):
        return session_stopped()
    if found := LOST.search(text):
        return NodeLostError(
            f"An executor was lost while nodes started there: {found[0]}",
            fix="Look at the executor's log; if memory ran out, raise spark.executor.memoryOverhead.",
        )
    if waits_for_rows and not BARRIER.search(text):
        text_of_spark = FRAMES.sub("", text).strip()
        return DataError(
            f"Spark could not compute the rows of `data`. Received:\n{text_of_spark[:TEXT_LIMIT]}",
            fix="Correct the DataFrame, its own functions or its files: df.count() fails in the same way. Spark's "
            "whole message is this error's __cause__.",
        )
    first = "\n".join(text.splitlines()[:12])
    return ClusterError(
        f"The Spark job of this run failed:\n{first}",
        fix="Look at the executors' logs; the whole of Spark's message is this error's __cause__.",
    )


def session_stopped(how: str = "was stopped") -> ClusterError:
    """Return the error of nodes that ended with their session."""
    return ClusterError(
        f"The Spark session must outlive its nodes. Received: the session {how} while they ran, which ended them.",
        fix="Keep the session until ef.run has returned, or until after cluster.stop().",
    )


class LostTask(NamedTuple):
    """The task that failed first, as Spark names it.

    Attributes:
        partition: Its number in its stage.
        problem: Why it failed; "" where it was killed and Spark does not know why.
        fix: What to change; "" where Spark's text does not tell.
    """

    partition: int
    problem: str
    fix: str = ""


def lost_task_in(error: BaseException, *, has_barrier: bool = True) -> LostTask | None:
    """Return the task that failed first, if Spark's text names one.

    Args:
        error: What Spark raised.
        has_barrier: Whether the nodes' tasks are those of a barrier stage, which Spark's text names in another way.
    """
    found = (LOST_TASK if has_barrier else LOST_PLAIN_TASK).search(str(error))
    if found is None or WRONG_PYTHON.search(str(error)):  # no node was started: `translate` says why
        return None
    partition, text = int(found[1]), found[2]
    if KILLED.search(text) and not CONTAINER.search(text):
        return LostTask(partition, "")
    return LostTask(partition, *explain_loss(text, "its Spark task failed"))


def explain_loss(text: str, otherwise: str) -> tuple[str, str]:
    """Return why Spark lost a task, by its own text, and what to change; `otherwise` begins all other problems."""
    if container := CONTAINER.search(text):
        fix = OVERHEAD if OUT_OF_MEMORY.search(text) else ""
        return f"its executor has ended. {container[1]}", fix
    return f"{otherwise}: {text}", ""
