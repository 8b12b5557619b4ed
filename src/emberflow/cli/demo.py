"""`emberflow demo`: train on a Spark of two executors on this machine, and show what came of it."""

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

from emberflow.cli.digits import Digits, frame_of, load_digits, read_digits, train
from emberflow.errors import EmberflowError
from emberflow.local.cluster import local_cluster
from emberflow.result import Result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from emberflow.ml import KerasModel

NUMBERS = ("no", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight")
PICTURE = "predictions.png"
LOG = "spark.log"


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What came of the training.

    Attributes:
        history: Per epoch, what Keras logged.
        scores: Ten probabilities for each digit of the test.
        accuracy: The share of these that it reads right.
        result: What the nodes reported.
    """

    history: dict[str, list[float]]
    scores: Any
    accuracy: float
    result: Result


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
        (output / LOG).unlink(missing_ok=True)
        learned = _learn(console, digits, output, workers, epochs)
        _draw(console, digits, learned, output)
    except EmberflowError as error:
        Console(stderr=True, highlight=False).print(f"[red]{type(error).__name__}[/red]", error, markup=True)
        return 1
    except KeyboardInterrupt:
        console.print("\nStopped; nothing is left running.")
        return 130
    _explain(console, learned, output, time.monotonic() - started)
    return 0


def _learn(console: Console, digits: Digits, output: Path, workers: int, epochs: int) -> Learned:
    console.print(
        f"[bold]Digits:[/bold] {len(digits.labels):,} handwritten ones to learn from, "
        f"{len(digits.test_labels):,} to be tested on"
    )
    with _spark(console, output, workers) as spark:
        rows = frame_of(spark, digits)
        on = "1 executor" if workers == 1 else f"{workers} executors"
        console.print(
            f"[bold]Training[/bold] a small network on {on}: ef.KerasEstimator, {epochs} passes over the digits"
        )
        model = train(rows, workers=workers, epochs=epochs, digits=len(digits.labels))
        with _stderr_to(output / LOG):  # TensorFlow introduces itself there
            with console.status(f"Reading the test's digits with it, on {on} ..."):
                scores = read_digits(model, rows)
            with console.status("Saving the model ..."):
                model.write().overwrite().save(str(output / "model"))
    return _learned(digits, model, scores)


def _learned(digits: Digits, model: "KerasModel", scores: Any) -> Learned:
    assert model.result is not None  # noqa: S101 - for the type checker: it comes from fit
    right = float((scores.argmax(1) == digits.test_labels).mean())
    return Learned(history=model.history, scores=scores, accuracy=right, result=model.result)


@contextmanager
def _spark(console: Console, output: Path, workers: int) -> "Iterator[SparkSession]":
    """Run a Spark with as many executors as there are workers, and a session on it."""
    started = time.monotonic()
    with ExitStack() as held:
        with console.status(f"Starting Spark: a Master, {workers} Workers, a session ..."):
            cluster = held.enter_context(local_cluster(workers=workers, cores=1))
            with _stderr_to(output / LOG):  # the driver's JVM keeps it for its log
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
        with path.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _draw(console: Console, digits: Digits, learned: Learned, output: Path) -> None:
    from emberflow.cli.show import Curve, draw

    nodes = len(learned.result.reports)
    executors = "executor" if nodes == 1 else "executors"
    title = (
        f"{NUMBERS[nodes]} Spark {executors} learned to read: {learned.accuracy:.1%} of "
        f"{len(digits.test_labels)} unseen digits right"
    )
    history = learned.history
    with console.status("Drawing the picture ..."):
        curve = Curve(history["loss"], history["val_loss"], history["val_accuracy"])
        draw(output / PICTURE, digits.test_images, digits.test_labels, learned.scores, curve, title)


def _explain(console: Console, learned: Learned, output: Path, seconds: float) -> None:
    result = learned.result
    speeds = [
        metric.values["rows_per_second"] for metric in result.metrics if "rows_per_second" in metric.values
    ]
    table = Table.grid(padding=(0, 2))
    table.add_row("test accuracy", f"[bold green]{learned.accuracy:.4f}[/bold green]")
    if speeds:
        table.add_row("rows per second", f"{speeds[-1]:,.0f}, all workers together")
    for report in result.reports:
        table.add_row(
            f"{report.role} {report.rank}",
            f"on {report.host}, {report.feed['rows']:,} rows, {report.seconds:.1f} s",
        )
    table.add_row("all in all", f"{seconds:.0f} s, Spark's start and end included")
    table.add_row("picture", f"[bold]{output / PICTURE}[/bold]")
    table.add_row("model", f"{output / 'model'}")
    table.add_row("Spark's log", f"{output / LOG}")
    console.print()
    console.print(table)
    console.print("\n[bold]What to try next[/bold]")
    program = _shown(Path(sys.executable).with_name("emberflow"))
    command = program if not program.is_absolute() else Path("emberflow")
    advice = Table.grid(padding=(0, 2))
    advice.add_row(f"  {command} demo --workers 1", "the same on one executor")
    advice.add_row(f"  {command} show {output / 'model'}", "what the trained model takes and gives")
    advice.add_row(f"  {_shown(Path(__file__).with_name('digits.py'))}", "the program that was trained")
    advice.add_row(f"  {command} local-cluster", "a Spark for your own programs")
    advice.add_row(f"  {command} doctor --help", "is your own cluster ready?")
    advice.add_row("  README.md", "a Keras model on a DataFrame")
    console.print(advice)


def _shown(path: Path) -> Path:
    """Return the path as short as it can be from here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
