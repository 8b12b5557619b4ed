"""The record of `ef.run_parallel`: each task is a node of it, which reports while it runs."""

import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from emberflow._driver.events import (
    AttemptEvent,
    Events,
    Gone,
    JobFailed,
    JobRows,
    Joined,
    NodeSent,
    Undelivered,
)
from emberflow._driver.paths import record_path
from emberflow._driver.recording import failure_recorded, record_result, start_recording
from emberflow._protocol.codec import Message
from emberflow._protocol.driver_messages import LogLines, NodeReady, NodeUsage
from emberflow._protocol.outcome import MetricReport, Outcome
from emberflow._record import events as record
from emberflow._record.recorder import Recorder
from emberflow.page.opening import page_shown
from emberflow.page.report import RunReport
from emberflow.result import Result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GONE = "the connection to its Spark task has closed"


class ParallelRecord:
    """Records the tasks of one call; a context manager that serves its page, and notes the error of the block.

    Args:
        spark: The session.
        fn: Your function.
        tasks: The number of tasks.
        gpus: GPUs of each.
        record: The folder for records, as the caller has named it.
        page: Whether to serve its page; a number is the port.

    Attributes:
        run_id: Names the call.
        recorder: What it records with.
    """

    def __init__(
        self,
        spark: "SparkSession",
        fn: Callable[..., Any],
        *,
        tasks: int,
        gpus: int,
        record: str | None,
        page: bool | int,
    ) -> None:
        self.run_id = secrets.token_hex(4)
        self.recorder = Recorder()
        self._spark = spark
        self._fn = fn
        self._tasks = tasks
        self._gpus = gpus
        self._folder = record_path(spark, record)
        self._page = page
        self._held = ExitStack()
        self._reports = _TaskReports(self.recorder)

    def __enter__(self) -> Self:
        with ExitStack() as held:
            held.enter_context(page_shown(self.recorder, self._page))
            held.enter_context(failure_recorded(self.recorder))
            self._begin()
            self._held = held.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.__exit__(kind, error, trace)

    def _begin(self) -> None:
        options = {"tasks": self._tasks, "gpus": self._gpus}
        start_recording(
            self.recorder,
            self._spark,
            self.run_id,
            "parallel",
            self._fn,
            record=self._folder,
            options=options,
        )
        nodes = tuple(record.PlannedNode(rank=task, role="task", index=task) for task in range(self._tasks))
        self.recorder.emit(record.RunPlanned, nodes=nodes, plan={"gpus": self._gpus})
        self.recorder.emit(record.AttemptStarted, attempt=0)

    @contextmanager
    def following(self, events: Events) -> Iterator[None]:
        """Record what tasks report, on a thread, until `JobRows` or the end of the block."""
        thread = threading.Thread(
            target=self._reports.follow, args=(events,), name="emberflow-parallel", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            events.put(JobFailed(RuntimeError("the call has ended")))
            thread.join()

    def ended(self, results: tuple[Result, ...]) -> tuple[Result, ...]:
        """Complete the record, and return the results."""
        record_result(self.recorder, [result.value for result in results])
        report = RunReport(self.recorder.state)
        return tuple(replace(each, record=self.recorder.folder, _report=report) for each in results)


class _TaskReports:
    """What is known of each task: from its connection while it runs, and from its rows in the end."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._printed: set[int] = set()
        self._measured: set[int] = set()
        self._endings: dict[int, str] = {}

    def follow(self, events: Events) -> None:
        """Record until the job is over."""
        while not isinstance(event := events.get(), JobFailed):
            self._on(event)
            if isinstance(event, JobRows):
                return

    def _on(self, event: AttemptEvent) -> None:
        match event:
            case Joined(task, host):
                self._endings.pop(task, None)  # Spark runs it again
                self._recorder.emit(record.NodeJoined, rank=task, host=host)
            case NodeSent(task, message):
                self._on_message(task, message)
            case Undelivered(task, problem, fix, _):
                self._end(task, "undelivered", problem=problem, fix=fix)
            case Gone(task, why) if task not in self._endings:
                self._end(task, "lost", problem=why or GONE)
            case JobRows(rows):
                self._add(rows)

    def _on_message(self, task: int, message: Message) -> None:
        match message:
            case NodeReady():
                self._recorder.emit(record.NodeReady, rank=task)
            case LogLines(text):
                self._printed.add(task)
                self._recorder.emit(record.LinesPrinted, rank=task, text=text)
            case MetricReport(step=step, values=values):
                self._measured.add(task)
                self._recorder.emit(record.MetricsReported, rank=task, step=step, values=values)
            case NodeUsage(memory, cpus, gpus):
                self._recorder.emit(record.NodeUsed, rank=task, memory=memory, cpus=cpus, gpus=gpus)
            case Outcome():
                self._on_outcome(task, message)

    def _add(self, rows: Sequence[Any]) -> None:
        """Take what the Spark job brought back: all of a task that could not reach the driver, else its end."""
        for row in rows:
            if row["part"] == 0:
                self._on_outcome(row["task"], Outcome.from_json(row["outcome"]))

    def _on_outcome(self, task: int, outcome: Outcome) -> None:
        if self._endings.get(task) == outcome.ending.value:
            return
        if task not in self._measured:
            for report in outcome.metrics:
                self._recorder.emit(record.MetricsReported, rank=task, step=report.step, values=report.values)
        if outcome.log_tail and task not in self._printed:
            self._recorder.emit(record.LinesPrinted, rank=task, text=outcome.log_tail)
        self._measured.add(task)
        self._printed.add(task)
        self._end(
            task,
            outcome.ending.value,
            problem=outcome.problem,
            fix=outcome.fix,
            seconds=outcome.seconds,
            host=outcome.host,
        )

    def _end(self, task: int, ending: str, **known: Any) -> None:
        self._endings[task] = ending
        self._recorder.emit(record.NodeEnded, rank=task, ending=ending, **known)
