"""One try of the whole gang: from the first node to the end of the last, seen from the driver."""

import dataclasses
import logging
import queue
import time
from collections.abc import Callable
from typing import Any

from emberflow._driver.console import Console, warn_undialled
from emberflow._driver.hub import Hub
from emberflow._driver.job import Job, is_called_off, lost_task_in, outcome_in, translate
from emberflow._driver.stalls import StallDetector, start_timeout_error
from emberflow._plan import deadlines
from emberflow._plan.plan import RunPlan
from emberflow._protocol.frames import Message
from emberflow._protocol.outcome import GONE, Outcome, error_of, gone_outcome, undelivered_outcome
from emberflow._task.metric_log import MetricLog
from emberflow.errors import DataError, EmberflowError
from emberflow.result import Metric

log = logging.getLogger("emberflow")

STUCK = (
    "Look at the executor's host: its Python worker is stopped (SIGSTOP), or the host swaps or is overloaded. "
    "With max_restarts the run starts again from its last checkpoint."
)


class Attempt:
    """Watches one gang. Every wait has a deadline; when `run` has returned, nothing of the gang is left."""

    def __init__(
        self,
        plan: RunPlan,
        hub: Hub,
        job: Job,
        console: Console,
        metrics: MetricLog[Metric] | None = None,
        on_quit: Callable[[], None] = lambda: None,
    ) -> None:
        self.metrics: MetricLog[Metric] = metrics or MetricLog()  # of the attempts before as well
        self.tensorboard_url: str | None = None
        self._plan = plan
        self._hub = hub
        self._job = job
        self._console = console
        self._on_quit = on_quit
        self._hosts: dict[int, str] = {}
        self._ready: set[int] = set()
        self._gone: set[int] = set()
        self._outcomes: dict[int, Outcome] = {}
        self._failures: list[Outcome] = []
        self._borne: set[int] = set()
        self._rows: list[Any] | None = None
        self._job_error: Exception | None = None
        self._deadline = None if plan.waits_for_rows else time.monotonic() + plan.start_timeout
        self._silent_since: float | None = None
        self._quitting = False
        self._cancelled_by_us = False
        self._warned = False
        self._fed: dict[int, Message] = {}
        self._stalls = StallDetector(plan, hub, self._hosts)
        self._handlers: dict[str, Callable[[int, Message], None]] = {
            "log": self._on_log,
            "metric": self._on_metric,
            "fed": self._on_fed,
            "tensorboard": self._on_tensorboard,
            "joined": self._on_joined,
            "ready": self._on_ready,
            "outcome": self._on_outcome,
            "undelivered": self._on_undelivered,
            "gone": self._on_gone,
            "rows": self._on_rows,
            "job_error": self._on_job_error,
            "tasks_running": self._on_tasks_running,
            "state": self._stalls.hear,
        }

    def run(self) -> list[Any]:
        """Return what Spark brought back, or raise what went wrong."""
        self._job.start()
        try:
            self._until(self._is_over)
        finally:
            self._wind_down()
        if error := self._error():
            raise error from (None if is_called_off(self._job_error) else self._job_error)
        if self._rows is None:
            raise translate(
                self._job_error or RuntimeError("the job ended without a result"),
                waits_for_rows=self._plan.waits_for_rows,
            ) from self._job_error
        if self._plan.waits_for_rows and not self._rows:
            raise DataError(
                "The data must have at least one row. Received: none, so Spark started no task.",
                fix="Look at the DataFrame's filters.",
            )
        if len(self._hosts) < len(self._plan.nodes):
            self._show_late()
        return self._rows

    @property
    def is_chief_dialled(self) -> bool:
        """Whether the chief's task has reached the driver."""
        return 0 in self._hosts

    def _show_late(self) -> None:
        """Take what nodes reported, and the end of their logs, from Spark's rows where no wire brought them."""
        self._warn_undialled()
        for row in self._rows or ():
            if row["part"] == 0 and row["rank"] not in self._hosts:
                outcome = Outcome.from_json(row["outcome"])
                for message in outcome.metrics:
                    self._on_metric(outcome.rank, message)
                if outcome.log_tail:
                    self._console.lines(outcome.rank, outcome.log_tail)

    def _warn_undialled(self) -> None:
        if not self._warned and self._plan.driver_address:
            self._warned = True
            warn_undialled(self._plan.driver_address[0])

    def _until(self, is_over: Callable[[], bool], timeout: float | None = None) -> None:
        """Handle events until `is_over`, or for `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while not is_over():
            self._check_waits()
            waits = (end, self._deadline, self._silence_ends(), self._stalls.due())
            left = min(limit for limit in waits if limit is not None) - time.monotonic()
            if end is not None and time.monotonic() >= end:
                return
            try:
                event = self._hub.events.get(timeout=max(left, deadlines.SHORTEST_WAIT))
            except queue.Empty:
                continue
            self._handle(event)

    def _is_over(self) -> bool:
        if self._failures or self._job_error:
            return True
        return self._rows is not None

    def _handle(self, event: Message) -> None:
        for kind, handler in self._handlers.items():
            if kind in event:
                handler(event.get("rank", -1), event)

    def _on_log(self, rank: int, event: Message) -> None:
        self._console.lines(rank, event["log"])

    def _on_fed(self, rank: int, event: Message) -> None:
        self._fed[rank] = event["fed"]
        self._console.fed(list(self._fed.values()))

    def _on_tensorboard(self, _: int, event: Message) -> None:
        self.tensorboard_url = event["tensorboard"]
        self._console.say(f"TensorBoard: {self.tensorboard_url}")

    def _on_joined(self, rank: int, event: Message) -> None:
        if not self._hosts and self._plan.waits_for_rows:
            self._deadline = time.monotonic() + self._plan.start_timeout
        self._hosts[rank] = event["joined"]
        self._silent_since = None
        if len(self._plan.stages) > 1 and not self._quitting:
            self._job.go_on(len(self._hosts))
        if len(self._hosts) == len(self._plan.nodes) and self._deadline:
            self._deadline += deadlines.START_GRACE

    def _on_ready(self, rank: int, _: Message) -> None:
        self._ready.add(rank)
        if len(self._ready) == len(self._plan.nodes):
            self._deadline = None
            self._console.status("running")

    def _on_rows(self, _: int, event: Message) -> None:
        self._rows = event["rows"]

    def _on_job_error(self, _: int, event: Message) -> None:
        self._job_error = event["job_error"]
        if outcome := outcome_in(event["job_error"]):
            self._record(outcome)
        elif (task := lost_task_in(event["job_error"])) is not None:
            # Spark's word may come before the end of the connection or after that of tasks which Spark then ended.
            cause = event["first_rank"] + task[0]
            self._record_lost(cause, f"its Spark task failed: {task[1]}" if task[1] else GONE)
            self._failures.sort(key=lambda failure: failure.rank != cause)

    def _on_tasks_running(self, _: int, __: Message) -> None:
        if not self._hosts and self._silent_since is None and self._deadline is not None:
            self._silent_since = time.monotonic()

    def _on_metric(self, rank: int, event: Message) -> None:
        values, attempt = event["metric"], self._plan.attempt
        metric = Metric(
            rank=rank, step=event["step"], values=values, seconds=event["seconds"], attempt=attempt
        )
        self.metrics.add((attempt, rank), values, metric)
        self._console.metric(metric)

    def _on_outcome(self, _: int, event: Message) -> None:
        self._record(Outcome.from_json(event["outcome"]))

    def _on_undelivered(self, rank: int, event: Message) -> None:
        self._record(undelivered_outcome(self._plan.nodes[rank], self._hosts.get(rank, "?"), event))

    def _record(self, outcome: Outcome) -> None:
        is_news = outcome.rank not in self._outcomes
        self._outcomes[outcome.rank] = outcome
        if outcome.ending == "returned":
            return
        if not outcome.goes_on or not self._plan.can_lose({*self._borne, outcome.rank}):
            self._failures.append(outcome)
        elif is_news:
            self._go_on_without(outcome)

    def _go_on_without(self, lost: Outcome) -> None:
        """Tell everybody that a worker is gone; its rows will not be seen any more in this run."""
        self._borne.add(lost.rank)
        log.warning("%s The run goes on without it, and without its rows.", lost.error().problem)
        self._hub.broadcast({"lost": lost.rank})

    def _on_gone(self, rank: int, event: Message) -> None:
        self._gone.add(rank)
        if not self._quitting:
            self._record_lost(rank, event.get("why", GONE), STUCK if "why" in event else "")

    def _record_lost(self, rank: int, problem: str = GONE, fix: str = "") -> None:
        """Note that a node's task is gone, unless more is known of its end."""
        known = self._outcomes.get(rank)
        if known is not None and (known.problem != GONE or problem == GONE):
            return
        self._failures = [failure for failure in self._failures if failure is not known]
        host = self._hosts.get(rank, "a lost executor")
        lost = gone_outcome(self._plan.nodes[rank], host, problem)
        self._record(dataclasses.replace(lost, fix=fix) if fix else lost)

    def _silence_ends(self) -> float | None:
        return None if self._silent_since is None else self._silent_since + deadlines.UNDIALLED_TIMEOUT

    def _check_waits(self) -> None:
        """Raise or record what has waited for too long."""
        now = time.monotonic()
        if self._silent_since is not None and now >= self._silent_since + deadlines.UNDIALLED_TIMEOUT:
            self._silent_since = None
            self._deadline = None  # the tasks run and keep the start's deadline themselves
            self._warn_undialled()
        if self._deadline is not None and now >= self._deadline:
            self._deadline = None
            raise start_timeout_error(self._plan, self._hosts, self._ready)
        for rank, problem, fix in [] if self._quitting or self._failures else self._stalls.missed():
            lost = gone_outcome(self._plan.nodes[rank], self._hosts[rank], problem)
            self._record(dataclasses.replace(lost, fix=fix))

    def _wind_down(self) -> None:
        """End whatever still runs, and wait until it is gone."""
        self._deadline = self._silent_since = None
        if self._rows is None:
            if self._failures:
                self._until(lambda: False, deadlines.CAUSE_SETTLE)
                self._until(self._is_explained, deadlines.LOST_TASK_SETTLE)
            self._quitting = True
            self._hub.dismiss()
            self._on_quit()  # a task that transfers a large value hears nothing else
            if len(self._hosts) < len(self._plan.nodes):
                self._cancel()
            self._until(self._is_quiet, deadlines.QUIT_GRACE)
            if not self._is_quiet():
                self._cancel()
        self._until(self._is_quiet, deadlines.TASKS_END_TIMEOUT)
        if not self._is_quiet():
            log.warning(
                "Some tasks of run %s did not end within %g s.",
                self._plan.run_id,
                deadlines.TASKS_END_TIMEOUT,
            )

    def _is_explained(self) -> bool:
        """Whether more is known than that tasks are gone: Spark may yet say why."""
        return self._job_error is not None or any(failure.problem != GONE for failure in self._failures)

    def _cancel(self) -> None:
        self._cancelled_by_us = self._job_error is None
        self._job.cancel()

    def _is_quiet(self) -> bool:
        job_over = self._rows is not None or self._job_error is not None
        return job_over and set(self._hosts) <= self._gone

    def _error(self) -> EmberflowError | None:
        """Return the error to raise, if something failed and nobody ended the job."""
        if not self._failures or self._was_called_off():
            return None
        return error_of(self._failures)

    def _was_called_off(self) -> bool:
        """Whether somebody else ended the Spark job: its tasks then go without a word."""
        if self._cancelled_by_us or not is_called_off(self._job_error):
            return False
        return all(outcome.problem == GONE or outcome.is_collateral for outcome in self._failures)
