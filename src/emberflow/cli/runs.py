"""`emberflow runs`: recorded runs, one line each, or two side by side."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

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
    html: Annotated[
        str | None,
        typer.Option(help="Write a report as one HTML file: of the newest run, or of those of --compare."),
    ] = None,
) -> None:
    """List the runs that were recorded in a folder, compare two of them, or write a report.

    A run is recorded by [bold]ef.run(..., record=PATH)[/bold], by the estimators' [bold]record[/bold], or by Spark's
    setting [bold]spark.emberflow.record[/bold].

    For example:

      emberflow runs hdfs:///runs

      emberflow runs /shared/runs --compare 4f1c last

      emberflow runs /shared/runs --html run.html
    """
    raise typer.Exit(run_runs(path, compare, html))


def run_runs(path: str, compare: tuple[str, str] | None, html: str | None = None) -> int:
    """Print the runs; return the exit code."""

    def show(console: Console) -> None:
        states = read_runs(path)
        if html is not None:
            _write_report(console, [selected(states, name) for name in compare or (LAST,)], html)
        elif compare:
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

    rows = [("run", "began", "function", "state", "nodes", "attempts", "seconds", "last metrics")]
    for run in map(summary_of, states):
        began = f"{datetime.fromtimestamp(run.at, UTC).astimezone():%Y-%m-%d %H:%M}"
        figures = (str(run.nodes), str(run.attempts), f"{run.seconds:.0f}")
        rows.append((run.run_id or "?", began, run.name, run.status, *figures, metrics_in_words(run)))
    _print_columns(console, rows, right=(4, 5, 6))


def _print_columns(console: Console, rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> None:
    """Print rows under a heading, in columns that line up and are not broken, so that other programs read them."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for place, row in enumerate(rows):
        cells = [
            cell.rjust(width) if at in right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        line = Text("  ".join(cells).rstrip(), style="bold" if place == 0 else "")
        for state, style in COLOURS.items():
            line.highlight_words([state], style)
        console.print(line)


def _write_report(console: Console, states: "list[RunState]", html: str) -> None:
    from emberflow.page.report import write_report

    write_report(states, html)
    console.print(f"Report of {' and '.join(state.run_id for state in states)}: {html}", markup=False)


def _print_comparison(console: Console, one: "RunState", other: "RunState") -> None:
    from emberflow._record.run_summary import differences

    _print_columns(console, [("", one.run_id, other.run_id), *differences(one, other)])
