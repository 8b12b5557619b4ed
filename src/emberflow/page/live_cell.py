"""The live cell of a notebook: a run, shown in place of a bar and updated while it goes on."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from emberflow._plan import deadlines
from emberflow._record.recorder import Recorder
from emberflow._repeating import repeated
from emberflow.page.cell import cell_html


def is_notebook() -> bool:
    """Tell whether this program runs in a Jupyter kernel, whose cells show HTML."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


@contextmanager
def cell_shown(recorder: Recorder, *, wanted: bool) -> Iterator[None]:
    """Show a run in the cell for the length of the block, where there is one; its last state stays there.

    Args:
        recorder: What it shows.
        wanted: Whether the run shows its progress at all.
    """
    if not wanted or not is_notebook():
        yield
        return
    cell = _Cell(recorder)
    try:
        with repeated(cell.update, deadlines.CELL_INTERVAL, "emberflow-cell"):
            yield
    finally:
        cell.update()


class _Cell:
    """One output of a cell, found again by its display id."""

    def __init__(self, recorder: Recorder) -> None:
        from IPython.display import HTML, display

        self._recorder = recorder
        self._html: Any = HTML
        self._shown = 0
        self._handle: Any = display(HTML("<i>starting</i>"), display_id=True)

    def update(self) -> None:
        """Show what is new, if anything is."""
        with self._recorder.looking() as state:
            if state.version == self._shown:
                return
            self._shown = state.version
            text = cell_html(state)
        self._handle.update(self._html(text))
