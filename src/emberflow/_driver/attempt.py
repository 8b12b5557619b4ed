"""One attempt of a run: from the first node to the end of the last, seen from the driver."""

import enum
import logging
import queue
import time
from collections.abc import Callable
from typing import Any

from emberflow._driver.console import Console
from emberflow._driver.events import (
    AttemptEvent,
    Formed,
    Gone,
    JobFailed,
    JobRows,
    Joined,
    JoinedAgain,
    NodeSent,
    TasksRunning,
    Undelivered,
)
from emberflow._driver.failures import FailureTracker
from emberflow._driver.hub import Hub
from emberflow._driver.job import AttemptJob
from emberflow._driver.node_reports import NodeReports
from emberflow._driver.spark_errors import is_interrupted, translate
from emberflow._driver.stalls import StallDetector, start_timeout_error
from emberflow._driver.start_deadline import StartDeadline
from emberflow._driver.task_copies import TaskCopies
from emberflow._plan import deadlines
from emberflow._plan.plan import RunPlan
from emberflow._protocol.driver_messages import NodeReady, ProbeAnswer, WorkerLost
from emberflow._protocol.outcome import Outcome, lost_outcome
from emberflow._record import events as record
from emberflow._record.recorder import Recorder
from emberflow._task.metric_log import MetricLog
from emberflow.errors import DataError, EmberflowError
from emberflow.result import Metric

log = logging.getLogger("emberflow")

STUCK = (
    "Look at the executor's host: its Python worker is stopped (SIGSTOP), or the host swaps or is overloaded. "
    "With max_restarts the run starts again from its last checkpoint."
)


class AttemptState(enum.Enum):
    """The states of an attempt."""

    STARTING = "starting"
    """Not all nodes are ready."""
    RUNNING = "running"
    """All nodes are ready."""
    STOPPING = "stopping"
    """All tasks are told to end, after a failure."""


class Attempt:
    """Supervises the nodes of one attempt. Every wait has a deadline; when `run` has returned, no task is left."""

    def __init__(
        self,
        plan: RunPlan,
        hub: Hub,
        job: AttemptJob,
        console: Console,
        metrics: MetricLog[Metric] | None = None,
        on_quit: Callable[[], None] = lambda: None,
        recorder: Recorder | None = None,
    ) -> None:
        self._recorder = recorder or Recorder()
        self.reports = NodeReports(plan, console, metrics or MetricLog(), self._recorder)
        self._plan = plan
        self._hub = hub
        self._job = job
        self._console = console
        self._on_quit = on_quit
        self._state = AttemptState.STARTING
        self._hosts: dict[int, str] = {}
        self._ready: set[int] = set()
        self._gone: set[int] = set()
        self._failures = FailureTracker(plan, self._hosts, self._on_tolerated, self.reports.on_outcome)
        self._rows: list[Any] | None = None
        self._job_error: Exception | None = None
        self._has_barrier = plan.launch == "barrier"
        self._start = StartDeadline(plan, self._hosts)
        self._is_cancelled_by_us = False
        self._stalls = StallDetector(plan, hub, self._hosts)
        self._copies = TaskCopies(hub)
        self._on_event: dict[type[AttemptEvent], Callable[[Any], None]] = {
            Joined: self._on_joined,
            JoinedAgain: self._on_joined_again,
            Formed: self._on_formed,
            NodeSent: self._on_node_sent,
            Gone: self._on_gone,
            Undelivered: self._on_undelivered,
            JobRows: self._on_job_rows,
            JobFailed: self._on_job_failed,
            TasksRunning: self._on_tasks_running,
        }

    def run(self) -> list[Any]:
        """Return the rows of the Spark job, or raise what went wrong."""
        self._job.start()
        self._show_executors()
        try:
            self._until(self._is_over)
        finally:
            self._stop()
        if error := self._error():
            raise error from (None if is_interrupted(self._job_error) else self._job_error)
        return self._result()

    def _result(self) -> list[Any]:
        """Return the rows of an attempt in which no node failed, or raise why there are none."""
        if self._rows is None:
            raise translate(
                self._job_error or RuntimeError("the job ended without a result"),
                # Without a barrier Spark's text does not tell which stage failed: nodes join when all rows are there.
                waits_for_rows=self._plan.waits_for_rows and (self._has_barrier or not self._hosts),
            ) from self._job_error
        if self._plan.waits_for_rows and not self._rows:
            raise DataError(
                "The data must have at least one row. Received: none, so Spark started no task.",
                fix="Look at the DataFrame's filters.",
            )
        if len(self._hosts) < len(self._plan.nodes):
            self.reports.show_late(self._rows, self._hosts)
        return self._rows

    @property
    def has_chief_joined(self) -> bool:
        """Whether the task of the chief has connected to the driver."""
        return 0 in self._hosts

    def _until(
        self, is_over: Callable[[], bool], timeout: float | None = None, poll: float | None = None
    ) -> None:
        """Handle events until `is_over`, or for `timeout` seconds; look again every `poll` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while not is_over():
            self._check_waits()
            left = min(limit for limit in (end, *self._limits()) if limit is not None) - time.monotonic()
            if is_over() or (end is not None and time.monotonic() >= end):
                return
            try:
                event = self._hub.events.get(timeout=max(min(left, poll or left), deadlines.SHORTEST_WAIT))
            except queue.Empty:
                continue
            self._on_event[type(event)](event)

    def _limits(self) -> tuple[float | None, ...]:
        """Return the moments at which `_check_waits` must be called at the latest."""
        return (*self._start.due(), self._stalls.due(), self._copies.due())

    def _is_over(self) -> bool:
        return bool(self._failures.failures or self._job_error) or self._is_complete()

    def _is_complete(self) -> bool:
        """Tell whether all nodes have ended well."""
        return self._rows is not None

    def _on_node_sent(self, event: NodeSent) -> None:
        match event.message:
            case NodeReady():
                self._on_ready(event.rank)
            case Outcome() as outcome:
                self._failures.record(outcome)
            case ProbeAnswer() as answer:
                self._stalls.on_answer(event.rank, answer)
            case report:
                self.reports.on_message(event.rank, report)

    def _on_joined(self, event: Joined) -> None:
        self._hosts[event.rank] = event.host
        self._recorder.emit(record.NodeJoined, rank=event.rank, host=event.host)
        self._start.on_joined()
        if len(self._plan.stages) > 1 and self._state is not AttemptState.STOPPING:
            self._job.submit_next_stage(len(self._hosts))
        self._show_executors()

    def _on_joined_again(self, event: JoinedAgain) -> None:
        name = self._plan.nodes[event.rank].name
        log.info("Spark has started a second task of %s, which starts no node.", name)
        self._copies.on_joined(event.rank, self._gone)

    def _show_executors(self) -> None:
        """Show how many nodes have an executor, where they come one by one."""
        if not self._has_barrier and self._state is AttemptState.STARTING:
            self._console.status(f"waiting for executors: {len(self._hosts)} of {len(self._plan.nodes)}")

    def _on_formed(self, _: Formed) -> None:
        self._recorder.emit(record.ClusterFormed)

    def _on_ready(self, rank: int) -> None:
        self._ready.add(rank)
        self._recorder.emit(record.NodeReady, rank=rank)
        if len(self._ready) == len(self._plan.nodes) and self._state is AttemptState.STARTING:
            self._state = AttemptState.RUNNING
            self._start.end()
            self._console.status("running")

    def _on_tolerated(self, rank: int) -> None:
        """Go on without a worker."""
        self._hub.broadcast(WorkerLost(rank))

    def _on_undelivered(self, event: Undelivered) -> None:
        host = self._hosts.get(event.rank, "?")
        self._failures.record(event.outcome(self._plan.nodes[event.rank], host))

    def _on_gone(self, event: Gone) -> None:
        self._gone.add(event.rank)
        if self._state is AttemptState.STOPPING:
            return
        if event.why:
            self._failures.record_lost(event.rank, event.why, STUCK)
        else:
            self._failures.record_gone(event.rank)

    def _on_job_rows(self, event: JobRows) -> None:
        self._rows = event.rows

    def _on_job_failed(self, event: JobFailed) -> None:
        self._job_error = event.error
        self._failures.record_job_error(event.error, event.first_rank)

    def _on_tasks_running(self, _: TasksRunning) -> None:
        self._start.on_tasks_running()

    def _check_waits(self) -> None:
        """Raise or record what has waited for too long."""
        if self._start.is_silent():
            self.reports.warn_driver_unreachable()
        if self._start.has_passed() and not self._waits_for_rows():
            raise start_timeout_error(self._plan, self._hosts, self._ready)
        if self._state is not AttemptState.STOPPING and not self._failures.failures:
            for missed in self._stalls.missed():
                node, host = self._plan.nodes[missed.rank], self._hosts[missed.rank]
                self._failures.record(lost_outcome(node, host, problem=missed.problem, fix=missed.fix))
        for rank in self._copies.repeated():
            self._failures.record_repeated(rank)

    def _waits_for_rows(self) -> bool:
        """Tell whether executors still compute the rows that the nodes wait for."""
        return not self._hosts and self._plan.waits_for_rows and self._job.has_executors()

    def _stop(self) -> None:
        """End whatever still runs, and wait until it is gone."""
        self._start.end()
        if not self._is_complete():
            if self._failures.failures:
                self._until(lambda: False, deadlines.CAUSE_SETTLE)
                self._until(self._is_explained, self._job.loss_settle, deadlines.LOSS_POLL)
            self._on_ending()
            self._state = AttemptState.STOPPING
            self._hub.quit_all()
            self._on_quit()  # a task that transfers a large value reads nothing else
            if len(self._hosts) < len(self._plan.nodes) or self._would_repeat_task():
                self._cancel()
            # Without a barrier Spark runs a task again whose result it has lost, and waits for an executor for it.
            is_quiet = self._is_quiet if self._has_barrier else self._are_all_gone
            self._until(is_quiet, deadlines.QUIT_GRACE)
            if not self._is_quiet():
                self._cancel()
        self._until(self._is_quiet, deadlines.TASKS_END_TIMEOUT)
        if not self._is_quiet():
            log.warning(
                "Some tasks of run %s did not end within %g s.",
                self._plan.run_id,
                deadlines.TASKS_END_TIMEOUT,
            )

    def _would_repeat_task(self) -> bool:
        """Tell whether Spark starts a lost task again when others leave their slots, as it does without a barrier.

        A task that starts while its stage is cancelled is counted for ever by Spark's dynamic allocation, which then
        brings one executor too few for every later job.
        """
        return not self._has_barrier and self._failures.has_lost_task

    def _on_ending(self) -> None:
        """Nobody but the caller of `run` waits to be told that the attempt ends early."""

    def _is_explained(self) -> bool:
        """Tell whether more is known than that tasks are gone: Spark may yet say why."""
        if self._job_error is not None or self._failures.is_explained():
            return True
        if self._has_barrier:
            return False
        return self._failures.explain_first(self._job.why_lost)

    def _cancel(self) -> None:
        self._is_cancelled_by_us = self._job_error is None
        self._job.cancel()

    def _is_quiet(self) -> bool:
        is_job_over = self._rows is not None or self._job_error is not None
        return is_job_over and self._are_all_gone()

    def _are_all_gone(self) -> bool:
        return set(self._hosts) <= self._gone

    def _error(self) -> EmberflowError | None:
        """Return the error to raise, if a node failed and the job was not interrupted."""
        if not self._failures.failures or self._was_interrupted():
            return None
        return self._failures.error()

    def _was_interrupted(self) -> bool:
        """Tell whether the job was cancelled from outside: its tasks then exit without reporting a result."""
        if self._is_cancelled_by_us or not is_interrupted(self._job_error):
            return False
        return self._failures.may_follow_from_interrupt()
