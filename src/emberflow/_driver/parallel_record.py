"""The record of `ef.run_parallel`: each task is a node of it, known when it has ended."""

import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from emberflow._driver.paths import record_path
from emberflow._driver.recording import failure_recorded, record_result, start_recording
from emberflow._protocol.outcome import Outcome
from emberflow._record.events import (
    AttemptStarted,
    LinesPrinted,
    MetricsReported,
    NodeEnded,
    PlannedNode,
    RunPlanned,
)
from emberflow._record.recorder import Recorder
from emberflow.page.report import RunReport
from emberflow.result import Result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ParallelRecord:
    """Records the tasks of one call; a context manager that notes the error of the block.

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
    ) -> None:
        self.run_id = secrets.token_hex(4)
        options = {"tasks": tasks, "gpus": gpus}
        folder = record_path(spark, record)
        self.recorder = Recorder()
        start_recording(self.recorder, spark, self.run_id, "parallel", fn, record=folder, options=options)
        nodes = tuple(PlannedNode(rank=task, role="task", index=task) for task in range(tasks))
        self.recorder.emit(RunPlanned, nodes=nodes, plan={"gpus": gpus})
        self.recorder.emit(AttemptStarted, attempt=0)
        self._held = ExitStack()

    def __enter__(self) -> Self:
        self._held.enter_context(failure_recorded(self.recorder))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.__exit__(kind, error, trace)

    def add(self, rows: Sequence[Any]) -> None:
        """Take what the Spark job brought back of all tasks."""
        for row in rows:
            if row["part"] == 0:
                self._add(row["task"], Outcome.from_json(row["outcome"]))

    def ended(self, results: tuple[Result, ...]) -> tuple[Result, ...]:
        """Complete the record, and return the results."""
        record_result(self.recorder, [result.value for result in results])
        report = RunReport(self.recorder.state)
        return tuple(replace(each, record=self.recorder.folder, _report=report) for each in results)

    def _add(self, task: int, outcome: Outcome) -> None:
        for report in outcome.metrics:
            self.recorder.emit(MetricsReported, rank=task, step=report.step, values=report.values)
        if outcome.log_tail:
            self.recorder.emit(LinesPrinted, rank=task, text=outcome.log_tail)
        self.recorder.emit(
            NodeEnded,
            rank=task,
            ending=outcome.ending.value,
            problem=outcome.problem,
            fix=outcome.fix,
            seconds=outcome.seconds,
            host=outcome.host,
        )
