"""One attempt: it ends, it names the true cause, and every wait has a limit."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from emberflow._driver.attempt import Attempt
from emberflow._driver.console import Console
from emberflow._driver.events import AttemptEvent, JobFailed, JobRows, Undelivered
from emberflow._driver.hub import Hub
from emberflow._plan import deadlines
from emberflow._protocol.driver_messages import Gathered, NodeReady, WorkerLost
from emberflow._protocol.outcome import MetricReport, Outcome
from emberflow.errors import (
    ClusterError,
    DataError,
    NodeFailedError,
    NodeLostError,
    RunCancelledError,
    StartTimeoutError,
    StorageError,
)
from tests.unit.nodes import KEY, WITHIN, FakeJob, FakeNode, outcome_of, plan_of

ROWS = [{"rank": 0, "part": 0}]
CANCELLED = RuntimeError("[SPARK_JOB_CANCELLED] Job 3 cancelled as part of cancellation of all jobs")

FAILED_ROWS = """Job aborted due to stage failure: Could not recover from a failed barrier ResultStage. Most recent \
failure reason: Stage failed because barrier task ResultTask(7, 1) finished unsuccessfully.
FetchFailed(BlockManagerId(0, 10.0.0.7, 7337, None), shuffleId=0, mapIndex=3, mapId=3, reduceId=1, message=
org.apache.spark.shuffle.FetchFailedException: Failed to connect to /10.0.0.7:7337"""

UDF = """
  An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/home/me/rows.py", line 9, in clean
    raise ValueError("row 77 is bad")
ValueError: row 77 is bad
"""

UNREADABLE = """An error occurred while calling o390.collectToPython.
: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///b.parquet.
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.cannotReadFilesError(QueryExecutionErrors.scala:920)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: java.io.IOException: can not read class org.apache.parquet.format.PageHeader
\tat org.apache.parquet.format.Util.read(Util.java:455)
\t... 22 more
"""

LOST = """Job aborted due to stage failure: Could not recover from a failed barrier ResultStage. Most recent failure \
reason: Stage failed because barrier task ResultTask(63, 1) finished unsuccessfully.
ExecutorLostFailure (executor 0 exited caused by one of the running tasks) Reason: Command exited with code 137"""


class RunningAttempt:
    """An attempt under way on a thread, with fake nodes and a fake Spark job."""

    def __init__(self, hub: Hub, ranks: int, start_timeout: float, **more: Any) -> None:
        self.hub = hub
        self.job = FakeJob(hub.events)
        plan = plan_of(ranks, start_timeout, **more)
        self.quits = 0
        console = Console(plan.nodes, verbose=False)
        self.attempt = Attempt(plan, hub, self.job, console, on_quit=self.quit_once)  # type: ignore[arg-type]
        self._pool = ThreadPoolExecutor(1)
        self.result: Future[Any] = self._pool.submit(self.attempt.run)
        self.nodes: list[FakeNode] = []

    def quit_once(self) -> None:
        self.quits += 1

    def start(self, ranks: int) -> list[FakeNode]:
        """Let all nodes join and get ready."""
        self.nodes = [FakeNode(self.hub, rank) for rank in range(ranks)]
        for node in self.nodes:
            node.say(NodeReady())
        self._await(lambda: len(self.attempt._ready) == ranks)
        return self.nodes

    def spark_says(self, event: AttemptEvent) -> None:
        self.hub.events.put(event)

    def hear_the_end_of(self, *nodes: FakeNode) -> None:
        """Wait until the driver knows that these nodes went: Spark itself speaks only after its tasks did."""
        self._await(lambda: {node.rank for node in nodes} <= self.attempt._gone)

    def _await(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WITHIN
        while not is_so():
            assert time.monotonic() < deadline
            threading.Event().wait(0.01)

    def quit_all(self) -> None:
        """Behave as tasks do that are told to quit: all go, and the job ends with no rows."""
        for node in self.nodes:
            with contextlib.suppress(EOFError, OSError):
                node.hear_quit()
            node.close()
        self.spark_says(JobRows([]))

    def error(self) -> BaseException | None:
        return self.result.exception(timeout=WITHIN)

    def close(self) -> None:
        for node in self.nodes:
            node.close()
        self.spark_says(JobRows([]))
        self.result.exception(timeout=WITHIN)
        self._pool.shutdown()


@contextlib.contextmanager
def attempt_of(ranks: int = 2, start_timeout: float = WITHIN, **more: Any) -> Iterator[RunningAttempt]:
    with contextlib.closing(Hub("127.0.0.1", KEY, ranks)) as hub:
        running = RunningAttempt(hub, ranks, start_timeout, **more)
        with contextlib.closing(running):
            yield running


def test_success_gives_spark_rows_and_metrics() -> None:
    with attempt_of() as running:
        first, second = running.start(2)
        second.say(MetricReport({"loss": 0.5}, step=1, seconds=0.1))
        for node in (second, first):
            node.end()
        running.hear_the_end_of(first, second)
        running.spark_says(JobRows(ROWS))
        assert running.result.result(timeout=WITHIN) == ROWS
        (metric,) = running.attempt.reports.metrics.items()
        assert (metric.rank, metric.step, metric.values) == (1, 1, {"loss": 0.5})
        assert running.job.cancelled == 0


def test_a_failure_ends_the_others_and_is_raised_with_rank_and_host() -> None:
    with attempt_of() as running:
        _, second = running.start(2)
        second.end("raised", problem="Traceback ...\nValueError: nan loss", exception_type="ValueError")
        running.quit_all()
        error = running.error()
        assert isinstance(error, NodeFailedError)
        assert (error.rank, error.host, error.exception_type) == (1, "host-1", "ValueError")


def test_a_value_that_the_driver_cannot_take_in_is_an_error_with_rank_and_cause() -> None:
    with attempt_of() as running:
        first, _ = running.start(2)
        running.spark_says(Undelivered(0, "No space left on device", "Free it.", "StorageError"))
        first.end("undelivered", problem="Connection reset", exception_type="NodeLostError")
        running.quit_all()
        error = running.error()
        assert isinstance(error, StorageError)
        told = "Chief 0 on host-0 could not deliver what your function returned: No space left on device"
        assert error.problem == told
        assert error.fix == "Free it."
        assert running.quits == 1


def test_the_cause_is_named_though_its_victim_speaks_first() -> None:
    with attempt_of(3) as running:
        first, second, third = running.start(3)
        first.end("raised", problem="UnavailableError: peer gone", exception_type="UnavailableError")
        third.end("raised", problem="Traceback ...\nValueError: nan loss", exception_type="ValueError")
        running.quit_all()
        error = running.error()
        assert isinstance(error, NodeFailedError)
        assert error.rank == 2
        assert error.others == ("chief 0 on host-0: UnavailableError: peer gone",)
        assert second.rank == 1


def test_a_task_that_goes_without_a_word_is_a_lost_node() -> None:
    with attempt_of() as running:
        _, second = running.start(2)
        second.close()
        running.quit_all()
        error = running.error()
        assert isinstance(error, NodeLostError)
        assert (error.rank, error.host) == (1, "host-1")
        assert "executor or its Python worker was killed" in str(error)


def test_a_node_that_does_not_read_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "SEND_TIMEOUT", 0.5)
    with attempt_of(2) as nodes:
        _, stuck = nodes.start(2)
        nodes.hub.send(1, Gathered("x" * (8 * 1024 * 1024), []))
        nodes.hear_the_end_of(stuck)
        nodes.quit_all()
        error = nodes.error()
    assert isinstance(error, NodeLostError)
    assert error.rank == 1
    assert "has not read what the driver sent for 0.5 s" in str(error)
    assert "SIGSTOP" in error.fix


def test_nodes_that_spark_never_starts_are_named_at_the_deadline() -> None:
    with attempt_of(3, start_timeout=0.3) as running:
        running.nodes = [FakeNode(running.hub, 1)]
        running.nodes[0].say(NodeReady())
        started = time.monotonic()
        threading.Thread(target=running.quit_all).start()
        error = running.error()
        assert isinstance(error, StartTimeoutError)
        assert "Spark has not started chief 0, worker 2" in str(error)
        assert time.monotonic() - started < 5
        assert running.job.cancelled  # what Spark has not started must not start later


def test_nodes_that_started_but_did_not_get_ready_are_named() -> None:
    with attempt_of(2, start_timeout=0.3) as running:
        running.nodes = [FakeNode(running.hub, rank) for rank in range(2)]
        running.nodes[0].say(NodeReady())
        threading.Thread(target=running.quit_all).start()
        assert "worker 1 started but did not get ready" in str(running.error())


def test_a_cancelled_job_is_told_as_such_though_tasks_went_first() -> None:
    with attempt_of() as running:
        for node in running.start(2):
            node.close()
        running.spark_says(JobFailed(CANCELLED))
        assert isinstance(running.error(), RunCancelledError)


def test_a_real_failure_is_not_hidden_by_a_cancelled_job() -> None:
    with attempt_of() as running:
        first, second = running.start(2)
        second.end("raised", problem="ValueError: nan", exception_type="ValueError")
        first.close()
        running.hear_the_end_of(first, second)
        running.spark_says(JobFailed(CANCELLED))
        assert isinstance(running.error(), NodeFailedError)


def test_sparks_own_error_is_translated_and_kept_as_the_cause() -> None:
    with attempt_of() as running:
        problem = RuntimeError('java.io.IOException: Cannot run program "/no/python": No such file')
        running.spark_says(JobFailed(problem))
        error = running.error()
        assert isinstance(error, ClusterError)
        assert "/no/python" in str(error)
        assert error.__cause__ is problem


@pytest.mark.parametrize("gone_before", [(), (0,), (1,), (0, 1)])
def test_a_lost_executor_is_told_by_rank_whoever_is_gone_before_spark_says_so(
    gone_before: tuple[int, ...],
) -> None:
    with attempt_of() as running:
        nodes = running.start(2)
        for rank in gone_before:
            nodes[rank].close()
            running.hear_the_end_of(nodes[rank])
        running.spark_says(JobFailed(RuntimeError(LOST)))
        running.quit_all()
        error = running.error()
        assert isinstance(error, NodeLostError)
        assert (error.rank, error.host) == (1, "host-1")


@pytest.mark.parametrize("is_gone_first", [True, False])
def test_what_spark_says_of_a_failed_task_is_told_instead_of_a_guess(is_gone_first: bool) -> None:
    with attempt_of() as running:
        _, second = running.start(2)
        failed = RuntimeError(FAILED_ROWS)
        if is_gone_first:
            second.close()
            running.hear_the_end_of(second)
        running.spark_says(JobFailed(failed))
        second.close()
        running.quit_all()
        error = running.error()
        assert isinstance(error, NodeLostError)
        assert error.rank == 1
        assert "its Spark task failed: FetchFailed(BlockManagerId(0, 10.0.0.7" in str(error)
        assert "killed" not in str(error)
        assert error.__cause__ is failed


@pytest.mark.parametrize(
    ("said", "cause"),
    [(UDF, "ValueError: row 77 is bad"), (UNREADABLE, "Caused by: java.io.IOException: can not read class")],
    ids=["udf", "file"],
)
def test_rows_that_spark_cannot_compute_are_an_error_of_the_data(said: str, cause: str) -> None:
    with attempt_of(waits_for_rows=True) as running:
        failed = RuntimeError(said)
        running.spark_says(JobFailed(failed))
        error = running.error()
        assert isinstance(error, DataError)
        assert cause in str(error)
        assert "\tat " not in str(error)
        assert "df.count()" in error.fix
        assert error.__cause__ is failed


def test_an_outcome_inside_sparks_error_is_found() -> None:
    with attempt_of() as running:
        raised = outcome_of(1, "raised", problem="ValueError: nan\n", exception_type="ValueError")
        text = f"Job aborted.\nNodeOutcomeError: {raised.to_error_text()}\nFix: ..."
        running.spark_says(JobFailed(RuntimeError(text)))
        error = running.error()
        assert isinstance(error, NodeFailedError)
        assert error.rank == 1


def test_tasks_that_do_not_end_by_themselves_are_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "QUIT_GRACE", 0.1)
    with attempt_of() as running:
        first, second = running.start(2)
        second.end("raised", problem="ValueError: nan", exception_type="ValueError")
        first.hear_quit()  # and does nothing
        deadline = time.monotonic() + WITHIN
        while not running.job.cancelled:
            assert time.monotonic() < deadline
            threading.Event().wait(0.01)
        first.close()
        assert isinstance(running.error(), NodeFailedError)


def lost(rank: int, *, is_tolerable: bool = True) -> Outcome:
    return outcome_of(rank, "lost", problem="SIGKILL", is_tolerable=is_tolerable)


def test_asynchronous_training_goes_on_without_a_worker_and_the_others_hear_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with attempt_of(3, strategy="periodic") as running:
        first, second, third = running.start(3)
        second.say(lost(1))
        for node in (first, third):
            node.await_message(WorkerLost(1))
        second.say(lost(1))  # its task says so again when all are done
        for node in (first, second, third):
            if node is not second:
                node.end()
            node.close()
        running.hear_the_end_of(first, second, third)
        running.spark_says(JobRows(ROWS))
        assert running.result.result(timeout=WITHIN) == ROWS
    assert caplog.text.count("The run goes on without it") == 1


def test_parameter_servers_need_one_worker_at_least() -> None:
    with attempt_of(3, strategy="parameter_server") as running:
        first, second, third = running.start(3)
        second.say(lost(1))
        first.await_message(WorkerLost(1))
        third.say(lost(2))
        running.quit_all()
        error = running.error()
        assert isinstance(error, NodeLostError)
        assert error.rank == 2


@pytest.mark.parametrize(
    ("strategy", "rank", "is_tolerable"), [("data_parallel", 1, True), ("periodic", 1, False)]
)
def test_other_losses_are_the_end(strategy: str, rank: int, is_tolerable: bool) -> None:
    with attempt_of(2, strategy=strategy) as running:
        running.start(2)[rank].say(lost(rank, is_tolerable=is_tolerable))
        running.quit_all()
        assert isinstance(running.error(), NodeLostError)
