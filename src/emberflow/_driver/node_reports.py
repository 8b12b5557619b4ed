"""What the nodes of an attempt tell about their work: metrics, log lines, rows written, TensorBoard's address."""

from collections.abc import Collection, Iterable
from typing import Any

from emberflow._driver.console import Console, warn_driver_unreachable
from emberflow._plan.plan import RunPlan
from emberflow._protocol.codec import Message
from emberflow._protocol.driver_messages import LogLines, RowsWritten
from emberflow._protocol.node_messages import TensorBoardStarted
from emberflow._protocol.outcome import MetricReport, Outcome
from emberflow._task.metric_log import MetricLog
from emberflow.result import Metric


class NodeReports:
    """Keeps what the nodes report, and shows it.

    Args:
        plan: Whose nodes report.
        console: Where it is shown.
        metrics: Of the attempts before; those of this one are added.
    """

    def __init__(self, plan: RunPlan, console: Console, metrics: MetricLog[Metric]) -> None:
        self.metrics = metrics
        self.tensorboard_url: str | None = None
        self._plan = plan
        self._console = console
        self._rows_written: dict[int, dict[str, Any]] = {}
        self._is_warned = False

    def on_message(self, rank: int, message: Message) -> None:
        """Keep and show a report; other messages are not for here."""
        match message:
            case LogLines(text):
                self._console.lines(rank, text)
            case MetricReport() as report:
                self._on_metric(rank, report)
            case RowsWritten(progress):
                self._rows_written[rank] = progress
                self._console.rows_written(list(self._rows_written.values()))
            case TensorBoardStarted(url):
                self.tensorboard_url = url
                self._console.say(f"TensorBoard: {url}")

    def show_late(self, rows: Iterable[dict[str, Any]], joined: Collection[int]) -> None:
        """Show metrics and the end of the log of nodes that had no connection to the driver: their rows hold both."""
        self.warn_driver_unreachable()
        for row in rows:
            if row["part"] == 0 and row["rank"] not in joined:
                outcome = Outcome.from_json(row["outcome"])
                for report in outcome.metrics:
                    self._on_metric(outcome.rank, report)
                if outcome.log_tail:
                    self._console.lines(outcome.rank, outcome.log_tail)

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
