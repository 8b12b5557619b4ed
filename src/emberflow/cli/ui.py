"""`emberflow ui`: recorded runs in a browser, those that go on included."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Annotated

import typer
from rich.console import Console

from emberflow.cli.until_interrupted import keep_until_interrupted


def ui(
    path: Annotated[str, typer.Argument(help="A folder of recorded runs, or one of them; any storage.")],
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port on loopback; any free one if left out.")
    ] = 0,
) -> None:
    """Show recorded runs in a browser until you press Ctrl-C; those that go on are followed.

    The page is served on this machine's loopback only, and the address holds a token. From another machine:
    [bold]ssh -L 8080:127.0.0.1:8080 HOST[/bold] with [bold]--port 8080[/bold].

    For example:

      emberflow ui /shared/runs

      emberflow ui hdfs:///runs --port 8080
    """
    raise typer.Exit(run_ui(path, port))


def run_ui(path: str, port: int) -> int:
    """Serve the page; return the exit code."""
    return keep_until_interrupted(_served(path, port), _print_address)


@contextmanager
def _served(path: str, port: int) -> Iterator[str]:
    from emberflow._driver.paths import resolve_path
    from emberflow.page.server import PageServer
    from emberflow.page.sources import RecordedRuns

    with closing(RecordedRuns(resolve_path(None, path))) as runs, PageServer(runs, port) as server:
        yield server.url


def _print_address(console: Console, url: str) -> None:
    import webbrowser

    from emberflow.page.opening import has_desktop

    console.print(f"[bold green]The runs are at[/bold green] {url}")
    console.print("Ctrl-C stops it.")
    if has_desktop():
        webbrowser.open(url)
