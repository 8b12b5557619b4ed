"""`emberflow demo`: train on a Spark of two executors on this machine, and show what came of it."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from emberflow.cli.digits import Digits, load_digits, train
from emberflow.errors import EmberflowError
from emberflow.local_cluster import local_cluster
from emberflow.result import Result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = ("no", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight")


def run_demo(*, output: Path, workers: int, epochs: int) -> int:
    """Train, draw and explain; return the exit code."""
    console = Console(highlight=False)
    os.environ.setdefault(
        "TF_CPP_MIN_LOG_LEVEL", "3"
    )  # nodes inherit it; what they say is about training then
    started = time.monotonic()
    try:
        digits = load_digits()
        output.mkdir(parents=True, exist_ok=True)
        result = _train(console, digits, output, workers, epochs)
        picture = _draw(console, digits, result, output)
    except EmberflowError as error:
        Console(stderr=True, highlight=False).print(f"[red]{type(error).__name__}[/red]", error, markup=True)
        return 1
    except KeyboardInterrupt:
        console.print("\nStopped; nothing is left running.")
        return 130
    _explain(console, result, picture, time.monotonic() - started)
    return 0


def _train(console: Console, digits: Digits, output: Path, workers: int, epochs: int) -> Result:
    from emberflow.run import run

    console.print(
        f"[bold]Digits:[/bold] {len(digits.labels):,} handwritten ones to learn from, "
        f"{len(digits.test_labels):,} to be tested on"
    )
    with _spark(console, output, workers) as spark:
        console.print(
            f"[bold]Training[/bold] a small network on {workers} executors, {epochs} passes over the digits"
        )
        return run(partial(train, digits=digits, epochs=epochs), workers=workers, spark=spark)


@contextmanager
def _spark(console: Console, output: Path, workers: int) -> "Iterator[SparkSession]":
    """Run a Spark with as many executors as there are workers, and a session on it."""
    started = time.monotonic()
    with ExitStack() as held:
        with console.status(f"Starting Spark: a Master, {workers} Workers, a session ..."):
            cluster = held.enter_context(local_cluster(workers=workers, cores=1))
            with _stderr_to(output / "spark.log"):  # the driver's JVM keeps it for its log
                quiet = {"spark.ui.showConsoleProgress": "false"}
                spark = held.enter_context(cluster.session("emberflow demo", quiet))
        console.print(
            f"[bold]Spark:[/bold] {cluster.url} with {workers} executors, up in {time.monotonic() - started:.0f} s"
        )
        yield spark


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Let what is started in the block write its standard error to a file."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("wb") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _draw(console: Console, digits: Digits, result: Result, output: Path) -> Path:
    from emberflow.cli.show import Curve, draw

    picture = output / "predictions.png"
    value = result.value
    losses = [metric.values["loss"] for metric in result.metrics if "loss" in metric.values]
    count = NUMBERS[len(result.reports)]
    executors = "executor" if len(result.reports) == 1 else "executors"
    title = (
        f"{count} Spark {executors} learned to read: {value['history'][-1]:.1%} of "
        f"{len(digits.test_labels)} unseen digits right"
    )
    with console.status("Drawing the picture ..."):
        curve = Curve(losses, value["history"])
        draw(picture, digits.test_images, digits.test_labels, value["scores"], curve, title)
    return picture


def _explain(console: Console, result: Result, picture: Path, seconds: float) -> None:
    rates = sorted(metric.values["rows_per_s"] for metric in result.metrics if "rows_per_s" in metric.values)
    table = Table.grid(padding=(0, 2))
    table.add_row("test accuracy", f"[bold green]{result.value['history'][-1]:.4f}[/bold green]")
    table.add_row(
        "rows per second", f"{rates[len(rates) // 2]:,.0f} (median of {len(rates)} steps, all workers)"
    )
    for report in result.reports:
        table.add_row(
            f"{report.role} {report.rank}", f"on {report.host}, {report.seconds:.1f} s in your function"
        )
    table.add_row("all in all", f"{seconds:.0f} s, Spark's start and end included")
    table.add_row("picture", f"[bold]{picture}[/bold]")
    table.add_row("Spark's log", f"{picture.parent / 'spark.log'}")
    console.print()
    console.print(table)
    console.print("\n[bold]What to try next[/bold]")
    program = _shown(Path(sys.executable).with_name("emberflow"))
    command = program if not program.is_absolute() else Path("emberflow")
    advice = Table.grid(padding=(0, 2))
    advice.add_row(f"  {command} demo --workers 1", "the same on one executor")
    advice.add_row(f"  {_shown(Path(__file__).with_name('digits.py'))}", "the program that was trained")
    advice.add_row(f"  {command} local-cluster", "a Spark for your own programs")
    advice.add_row(f"  {command} doctor --help", "is your own cluster ready?")
    advice.add_row("  README.md", "a Keras model on a DataFrame")
    console.print(advice)


def _shown(path: Path) -> Path:
    """Return the path as short as it can be from here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
