"""What is shown while a run goes on: nodes' output with their name in front, and one line of progress."""

import logging
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console as RichConsole
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from emberflow._plan.roles import Node
from emberflow.result import Metric

log = logging.getLogger("emberflow")

PROGRESS = "progress"
COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")


class Console:
    """Shows one run on standard error; nothing unless `verbose`."""

    def __init__(self, nodes: Sequence[Node], verbose: bool) -> None:
        self._names = {node.rank: node.name for node in nodes}
        self._verbose = verbose
        self._rich = RichConsole(stderr=True, highlight=False, soft_wrap=True)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[numbers]}"),
            TimeElapsedColumn(),
            console=self._rich,
            transient=True,
            disable=not (verbose and self._rich.is_terminal),
        )
        self._task = self._progress.add_task("starting nodes", total=None, numbers="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def end_progress(self) -> None:
        """Remove the line of progress; what nodes print is shown as before."""
        self._progress.stop()

    def status(self, text: str) -> None:
        """Show what the run is doing now."""
        log.info("%s", text)
        self._progress.update(self._task, description=text, numbers="")

    def say(self, text: str) -> None:
        """Show one line of the driver itself."""
        if self._verbose:
            self._rich.print(Text(text, style="bold"))

    def lines(self, rank: int, text: str) -> None:
        """Show what a node printed."""
        if not self._verbose:
            return
        label = f"[{self._names[rank]}] "
        lines = [line.rstrip("\r") for line in text.split("\n")]
        if not self._rich.is_terminal:  # rich takes a hundred times as long
            self._rich.file.write("".join(f"{label}{line}\n" for line in lines))
            self._rich.file.flush()
            return
        colour = COLOURS[rank % len(COLOURS)]
        self._rich.print(Text("\n").join(Text(label, style=colour) + Text(line) for line in lines))

    def rows_written(self, counters: Sequence[dict[str, Any]]) -> None:
        """Show how many rows are written, over all ranks."""
        rows = sum(each["rows"] for each in counters)
        speed = sum(each["rows"] / each["seconds"] for each in counters if each["seconds"])
        waiting = {"source": "waiting for Spark", "sink": "waiting for the disk"}
        side = waiting.get(counters[0]["waiting_for"], "")
        numbers = f"{rows:,} rows  {speed:,.0f} rows/s  {side}"
        self._progress.update(self._task, description="reading rows", numbers=numbers)

    def metric(self, metric: Metric) -> None:
        """Show the newest numbers of the chief."""
        if metric.rank == 0:
            # Validation metrics are in the line that a node prints after each epoch; here they would not fit.
            hidden = [name for name in metric.values if name == PROGRESS or name.startswith("val_")]
            shown = {name: value for name, value in metric.values.items() if name not in hidden}
            numbers = "  ".join(_shown(name, value) for name, value in shown.items())
            if PROGRESS in metric.values:  # a share of the whole: then there is a bar to fill
                self._progress.update(self._task, total=1.0, completed=metric.values[PROGRESS])
            step = "" if metric.step is None else f"step {metric.step:,}  "
            self._progress.update(self._task, description="training", numbers=f"{step}{numbers}")


def _shown(name: str, value: float) -> str:
    """Return a number as people write it.

    >>> _shown("rows_per_second", 11180.4), _shown("loss", 0.0224111)
    ('11,180 rows/second', 'loss 0.02241')
    """
    number = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    head, per, unit = name.partition("_per_")
    return f"{number} {head}/{unit}" if per else f"{name} {number}"


def warn_driver_unreachable(host: str | None) -> None:
    """Warn that nothing can be shown of the nodes while they run."""
    log.warning(
        "Executors cannot reach this process at %s: output and progress come when the run is over. "
        "Pass driver_host=... with an address that they can reach.",
        host,
    )
