"""The page of a run of this process: served while the run goes on, printed, and opened where there is a desktop."""

import os
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager

from emberflow._record.recorder import Recorder
from emberflow.page.sources import LiveRuns


@contextmanager
def page_shown(recorder: Recorder, page: bool | int) -> Iterator[None]:
    """Serve the page of a run for the length of the block.

    Args:
        recorder: What it shows.
        page: Whether to; a number is the port to serve it on.
    """
    if page is False:
        yield
        return
    from emberflow.page.server import PageServer  # imports asyncio

    with PageServer(LiveRuns(recorder), 0 if page is True else page) as server:
        announce(server.url)
        yield


def announce(url: str) -> None:
    """Print the address, whatever is verbose, and open it if this is a person's own desktop."""
    sys.stderr.write(f"Run page: {url}\n")
    if has_desktop():
        webbrowser.open(url)


def has_desktop() -> bool:
    """Tell whether a browser can be opened in front of the person who started this program."""
    if not sys.stderr.isatty() or "SSH_CONNECTION" in os.environ:
        return False
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
