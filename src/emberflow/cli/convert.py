"""`emberflow convert`: files of one format into another: here with a progress bar, or by Spark, partitioned."""

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from emberflow.cli.exit_codes import exit_code_of
from emberflow.cli.spark_files import parse_pairs
from emberflow.errors import ConfigError


def run_convert(
    source: str,
    target: str,
    *,
    kind: str | None = None,
    to: str | None = None,
    labels: str | None = None,
    options: list[str] | None = None,
    partitions: int | None = None,
    master: str | None = None,
) -> int:
    """Convert, show the progress, and return the exit code."""

    def work(console: Console) -> None:
        if partitions is not None:
            from emberflow.cli.convert_job import convert_by_spark
            from emberflow.tfrecord.convert import format_of

            convert_by_spark(
                console,
                source,
                target,
                kind=format_of(source, kind),
                to=format_of(target, to),
                labels=labels,
                options=options or [],
                partitions=partitions,
                master=master,
            )
            return
        if master is not None:
            raise ConfigError(
                f"Spark writes one file per partition. Received: --master {master} without --partitions.",
                fix="Pass --partitions 10, or leave --master out to write one file without Spark.",
            )
        bars = Console(stderr=True, highlight=False)
        rows = _convert(source, target, kind, to, labels, options or [], bars)
        console.print(f"{rows:,} rows written to {target}", markup=False)

    return exit_code_of(work)


def _convert(
    source: str,
    target: str,
    kind: str | None,
    to: str | None,
    labels: str | None,
    options: list[str],
    console: Console,
) -> int:
    from emberflow._driver.paths import resolve_path
    from emberflow.tfrecord.convert import convert_file, format_of, read_rows

    source, target = resolve_path(None, source), resolve_path(None, target)
    labels = labels and resolve_path(None, labels)
    given = parse_pairs(options)
    out = format_of(target, to)
    rows = read_rows(source, format_of(source, kind), labels=labels, options=given)
    columns = [
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rows"),
        TimeElapsedColumn(),
    ]
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task(f"{source} to {out}", total=rows.total)

        def show_progress(done: int, total: int | None) -> None:
            progress.update(bar, completed=done, total=total)

        return convert_file(target, to=out, rows=rows, on_progress=show_progress, options=given)
