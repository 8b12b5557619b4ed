"""`emberflow runs`: recorded runs, one line each, or two side by side."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from emberflow.cli.exit_codes import exit_code_of
from emberflow.errors import ConfigError

if TYPE_CHECKING:
    from emberflow._record.run_state import RunState

COLOURS = {"succeeded": "green", "failed": "red", "cut": "yellow", "running": "cyan", "starting": "cyan"}
LAST = "last"


def runs(
    path: Annotated[str, typer.Argument(help="A folder of recorded runs, or one of them; any storage.")],
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(help="Two runs, side by side: the beginning of their names, or `last`."),
    ] = None,
) -> None:
    """List the runs that were recorded in a folder, or compare two of them.

    A run is recorded by [bold]ef.run(..., record=PATH)[/bold], by the estimators' [bold]record[/bold], or by Spark's
    setting [bold]spark.emberflow.record[/bold].

    For example:

      emberflow runs hdfs:///runs

      emberflow runs /shared/runs --compare 4f1c last
    """
    raise typer.Exit(run_runs(path, compare))


def run_runs(path: str, compare: tuple[str, str] | None) -> int:
    """Print the runs; return the exit code."""

    def show(console: Console) -> None:
        states = read_runs(path)
        if compare:
            _print_comparison(console, *(selected(states, name) for name in compare))
        else:
            _print_list(console, states)

    return exit_code_of(show)


def read_runs(path: str) -> "list[RunState]":
    """Return the recorded runs in a folder, the oldest first."""
    from emberflow._driver.paths import resolve_path
    from emberflow._record.record_files import read_record, records_in

    return [read_record(folder) for folder in records_in(resolve_path(None, path))]


def selected(states: "list[RunState]", name: str) -> "RunState":
    """Return the run whose name begins so; `last` is the newest."""
    if name == LAST:
        return states[-1]
    found = [state for state in states if state.run_id.startswith(name)]
    if len(found) != 1:
        known = ", ".join(state.run_id for state in states)
        raise ConfigError(
            f"A run is named by the beginning of its name, or `{LAST}`. Received: {name!r}, which "
            f"{'no run begins with' if not found else 'several runs begin with'}.",
            fix=f"Choose one of: {known}.",
        )
    return found[0]


def _print_list(console: Console, states: "list[RunState]") -> None:
    from emberflow._record.run_summary import metrics_in_words, summary_of

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("run", "began", "function", "state"):
        table.add_column(name)
    for name in ("nodes", "attempts", "seconds"):
        table.add_column(name, justify="right")
    table.add_column("last metrics")
    for state in states:
        run = summary_of(state)
        table.add_row(
            run.run_id or "?",
            f"{datetime.fromtimestamp(run.at, UTC).astimezone():%Y-%m-%d %H:%M}",
            run.name,
            f"[{COLOURS[run.status]}]{run.status}[/]",
            str(run.nodes),
            str(run.attempts),
            f"{run.seconds:.0f}",
            metrics_in_words(run.metrics),
        )
    console.print(table)


def _print_comparison(console: Console, one: "RunState", other: "RunState") -> None:
    from emberflow._record.run_summary import differences

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", one.run_id, other.run_id):
        table.add_column(name)
    for row in differences(one, other):
        table.add_row(*row)
    console.print(table)
