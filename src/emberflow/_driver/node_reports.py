"""What the nodes of an attempt tell about their work: metrics, log lines, rows written, TensorBoard's address."""

from collections.abc import Collection, Iterable
from typing import Any

from emberflow._driver.console import Console, warn_driver_unreachable
from emberflow._plan.plan import RunPlan
from emberflow._protocol.codec import Message
from emberflow._protocol.driver_messages import LogLines, NodeUsage, RowsTaken, RowsWritten
from emberflow._protocol.node_messages import TensorBoardStarted
from emberflow._protocol.outcome import MetricReport, Outcome
from emberflow._record.events import LinesPrinted, MetricsReported, NodeEnded, NodeUsed, RowsFed
from emberflow._record.recorder import Recorder
from emberflow._task.metric_log import MetricLog
from emberflow.result import Metric


class NodeReports:
    """Keeps what the nodes report, and shows it.

    Args:
        plan: Whose nodes report.
        console: Where it is shown.
        metrics: Of the attempts before; those of this one are added.
        recorder: Where it is recorded.
    """

    def __init__(
        self, plan: RunPlan, console: Console, metrics: MetricLog[Metric], recorder: Recorder
    ) -> None:
        self.metrics = metrics
        self.tensorboard_url: str | None = None
        self._plan = plan
        self._console = console
        self._recorder = recorder
        self._rows_written: dict[int, dict[str, Any]] = {}
        self._is_warned = False
        self._printed: set[int] = set()

    def on_message(self, rank: int, message: Message) -> None:
        """Keep and show a report; other messages are not for here."""
        match message:
            case LogLines(text):
                self._on_lines(rank, text)
            case MetricReport() as report:
                self._on_metric(rank, report)
            case RowsWritten(progress):
                self._rows_written[rank] = progress
                self._console.rows_written(list(self._rows_written.values()))
                self._on_rows(rank, progress)
            case RowsTaken(datasets):
                self._on_rows(rank, _busiest(datasets), is_training=True)
            case NodeUsage(memory, cpus, gpus):
                self._recorder.emit(NodeUsed, rank=rank, memory=memory, cpus=cpus, gpus=gpus)
            case TensorBoardStarted(url):
                self.tensorboard_url = url
                self._console.say(f"TensorBoard: {url}")

    def on_outcome(self, outcome: Outcome) -> None:
        """Record how a node ended, and its last lines if none were sent before."""
        if outcome.log_tail and outcome.rank not in self._printed:
            self._recorder.emit(LinesPrinted, rank=outcome.rank, text=outcome.log_tail)
        self._recorder.emit(
            NodeEnded,
            rank=outcome.rank,
            ending=outcome.ending.value,
            problem=outcome.problem,
            fix=outcome.fix,
            seconds=outcome.seconds,
            host=outcome.host,
        )

    def show_late(self, rows: Iterable[dict[str, Any]], joined: Collection[int]) -> None:
        """Show metrics and the end of the log of nodes that had no connection to the driver: their rows hold both."""
        self.warn_driver_unreachable()
        for row in rows:
            if row["part"] == 0 and row["rank"] not in joined:
                outcome = Outcome.from_json(row["outcome"])
                for report in outcome.metrics:
                    self._on_metric(outcome.rank, report)
                if outcome.log_tail:
                    self._on_lines(outcome.rank, outcome.log_tail)
                self.on_outcome(outcome)

    def warn_driver_unreachable(self) -> None:
        """Say once why nothing is heard of nodes that run."""
        if not self._is_warned and self._plan.driver_address:
            self._is_warned = True
            warn_driver_unreachable(self._plan.driver_address[0])

    def _on_metric(self, rank: int, report: MetricReport) -> None:
        attempt = self._plan.attempt
        metric = Metric(
            rank=rank, step=report.step, values=report.values, seconds=report.seconds, attempt=attempt
        )
        self.metrics.add((attempt, rank), report.values, metric)
        self._console.metric(metric)
        self._recorder.emit(MetricsReported, rank=rank, step=report.step, values=report.values)

    def _on_lines(self, rank: int, text: str) -> None:
        self._console.lines(rank, text)
        self._printed.add(rank)
        self._recorder.emit(LinesPrinted, rank=rank, text=text)

    def _on_rows(self, rank: int, progress: dict[str, Any], *, is_training: bool = False) -> None:
        self._recorder.emit(
            RowsFed,
            rank=rank,
            rows=progress["rows"],
            rows_per_second=progress["rows_per_second"],
            waiting_for=progress["waiting_for"],
            is_training=is_training,
        )


def _busiest(datasets: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the counters of the data of which most rows were taken: that is the training, epoch after epoch."""
    return max(datasets.values(), key=lambda each: int(each["rows"]))
