"""The report of a run: its page as one file, to send around and to keep."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from emberflow import storage
from emberflow._record.run_state import RunState
from emberflow.errors import StorageError
from emberflow.page import html
from emberflow.page.cell import cell_html
from emberflow.page.sources import brief


def write_report(states: Sequence[RunState], path: str) -> None:
    """Write one HTML file, on any storage; it needs neither a server nor a network.

    Args:
        states: The runs; the first is shown, the curves of the others beside it.
        path: Where to; what is there is replaced.

    Raises:
        StorageError: Nothing can be written there.
    """
    try:
        storage.write_bytes(path, html.report(map(_shown, states)).encode())
    except OSError as error:  # on local disk; any other failure is a StorageError already
        raise StorageError(
            f"A report must be a file that can be written. Received: path={path!r}, {error}.",
            fix="Choose a file in a folder of your own that exists, such as run.html.",
        ) from error


def _shown(state: RunState) -> dict[str, Any]:
    return {**state.changes(), "brief": brief(state)}


@dataclass(frozen=True)
class RunReport:
    """A run that is over, as its result shows it."""

    state: RunState

    def write(self, path: str) -> None:
        """Write the report of the run."""
        write_report([self.state], path)

    def cell(self) -> str:
        """Return the run as the content of a notebook's cell."""
        return cell_html(self.state)
