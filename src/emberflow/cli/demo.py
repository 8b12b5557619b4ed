"""`emberflow demo`: train on Spark with two executors on this machine, and show the result."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from emberflow.cli.demo_digits import Digits, frame_of, load_digits, read_digits, train
from emberflow.errors import EmberflowError
from emberflow.local.cluster import local_cluster
from emberflow.result import Result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from emberflow.ml import KerasModel

NUMBERS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight")
PICTURE = "predictions.png"
REPORT = "report.html"
LOG = "spark.log"


@dataclass(frozen=True, kw_only=True)
class DemoResult:
    """The result of the training.

    Attributes:
        history: Per epoch, what Keras logged.
        scores: Ten probabilities for each test digit.
        accuracy: The share of the test digits that are right.
        result: What the nodes reported.
    """

    history: dict[str, list[float]]
    scores: Any
    accuracy: float
    result: Result


def run_demo(*, output: Path, workers: int, epochs: int) -> int:
    """Train, draw the picture, print a summary; return the exit code."""
    console = Console(highlight=False)
    os.environ.setdefault(
        "TF_CPP_MIN_LOG_LEVEL", "3"
    )  # nodes inherit it: their output is about training only
    started = time.monotonic()
    try:
        digits = load_digits()
        output.mkdir(parents=True, exist_ok=True)
        (output / LOG).unlink(missing_ok=True)
        done = _train_and_score(console, digits, output, workers, epochs)
        done.result.report(str(output / REPORT))
        _draw(console, digits, done, output)
    except EmberflowError as error:
        Console(stderr=True, highlight=False).print(f"[red]{type(error).__name__}[/red]", error, markup=True)
        return 1
    except KeyboardInterrupt:
        console.print("\nStopped. No process is left.")
        return 130
    _print_summary(console, done, output, time.monotonic() - started)
    return 0


def _train_and_score(console: Console, digits: Digits, output: Path, workers: int, epochs: int) -> DemoResult:
    console.print(
        f"[bold]Digits:[/bold] {len(digits.labels):,} handwritten ones to train on, "
        f"{len(digits.test_labels):,} to test on"
    )
    with _spark(console, output, workers) as spark:
        rows = frame_of(spark, digits)
        on = "1 executor" if workers == 1 else f"{workers} executors"
        console.print(
            f"[bold]Training[/bold] a small network on {on}: ef.KerasEstimator, {epochs} passes over the digits"
        )
        model = train(rows, workers=workers, epochs=epochs, digits=len(digits.labels))
        with _stderr_to(output / LOG):  # TensorFlow logs its start there
            with console.status(f"Scoring the test digits, on {on} ..."):
                scores = read_digits(model, rows)
            with console.status("Saving the model ..."):
                model.write().overwrite().save(str(output / "model"))
    return _demo_result(digits, model, scores)


def _demo_result(digits: Digits, model: "KerasModel", scores: Any) -> DemoResult:
    assert model.result is not None  # noqa: S101 - for the type checker: it comes from fit
    right = float((scores.argmax(1) == digits.test_labels).mean())
    return DemoResult(history=model.history, scores=scores, accuracy=right, result=model.result)


@contextmanager
def _spark(console: Console, output: Path, workers: int) -> "Iterator[SparkSession]":
    """Run Spark with as many executors as there are workers, and a session on it."""
    started = time.monotonic()
    with ExitStack() as held:
        with console.status(f"Starting Spark: a Master, {workers} Workers, a session ..."):
            cluster = held.enter_context(local_cluster(workers=workers, cores=1))
            with _stderr_to(output / LOG):  # the driver's JVM inherits it for its log
                quiet = {"spark.ui.showConsoleProgress": "false"}
                spark = held.enter_context(cluster.session("emberflow demo", quiet))
        console.print(
            f"[bold]Spark:[/bold] {cluster.url} with {workers} executors, "
            f"started in {time.monotonic() - started:.0f} s"
        )
        yield spark


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Redirect standard error, also of processes that start in the block, to a file."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _draw(console: Console, digits: Digits, done: DemoResult, output: Path) -> None:
    from emberflow.cli.demo_picture import Curve, draw

    nodes = len(done.result.reports)
    executors = "executor" if nodes == 1 else "executors"
    title = (
        f"{NUMBERS[nodes]} Spark {executors} learned to read: {done.accuracy:.1%} of "
        f"{len(digits.test_labels)} test digits right"
    )
    history = done.history
    with console.status("Drawing the picture ..."):
        curve = Curve(history["loss"], history["val_loss"], history["val_accuracy"])
        draw(output / PICTURE, digits.test_images, digits.test_labels, done.scores, curve, title)


def _print_summary(console: Console, done: DemoResult, output: Path, seconds: float) -> None:
    result = done.result
    speeds = [
        metric.values["rows_per_second"] for metric in result.metrics if "rows_per_second" in metric.values
    ]
    table = Table.grid(padding=(0, 2))
    table.add_row("test accuracy", f"[bold green]{done.accuracy:.4f}[/bold green]")
    if speeds:
        table.add_row("rows per second", f"{speeds[-1]:,.0f}, all workers together")
    for report in result.reports:
        table.add_row(
            f"{report.role} {report.rank}",
            f"on {report.host}, {report.feed['rows']:,} rows, {report.seconds:.1f} s",
        )
    table.add_row("total time", f"{seconds:.0f} s, with the start and the end of Spark")
    table.add_row("picture", f"[bold]{output / PICTURE}[/bold]")
    table.add_row("report", f"[bold]{output / REPORT}[/bold], what happened, for a browser")
    table.add_row("model", f"{output / 'model'}")
    table.add_row("Spark's log", f"{output / LOG}")
    console.print()
    console.print(table)
    console.print("\n[bold]What to try next[/bold]")
    program = _shown(Path(sys.executable).with_name("emberflow"))
    command = program if not program.is_absolute() else Path("emberflow")
    advice = Table.grid(padding=(0, 2))
    advice.add_column(no_wrap=True)  # a command that can be copied
    advice.add_row(f"  {command} demo --workers 1", "the same on one executor")
    advice.add_row(f"  {command} show {output / 'model'}", "inputs and outputs of the trained model")
    advice.add_row(f"  {_shown(Path(__file__).with_name('demo_digits.py'))}", "the program that was trained")
    advice.add_row(f"  {command} local-cluster", "Spark for your own programs")
    advice.add_row(f"  {command} doctor --help", "check your own cluster")
    advice.add_row("  README.md", "a Keras model on a DataFrame")
    console.print(advice)


def _shown(path: Path) -> Path:
    """Return the path relative to the current folder, if it is inside."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
