"""A page of simulated events: what the driver would tell, at the pace of a test."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from emberflow._record.events import Event
from emberflow._record.recorder import Recorder
from emberflow._record.run_state import RunState, fold
from emberflow.page.server import PageServer
from emberflow.page.sources import LiveRuns, brief


def tell(recorder: Recorder, events: Iterable[Event]) -> None:
    """Have the recorder note events with the times that they have."""
    for event in events:
        with recorder.looking() as state:
            state.apply(event)


@contextmanager
def served(events: Iterable[Event]) -> Iterator[tuple[Recorder, PageServer]]:
    """Serve the page of a run that has come so far."""
    recorder = Recorder()
    tell(recorder, events)
    with PageServer(LiveRuns(recorder)) as server:
        yield recorder, server


class SeveralRuns:
    """Runs as a folder of records would have them; a test tells what happens next in each."""

    def __init__(self, *runs: Iterable[Event]) -> None:
        self._lock = threading.Lock()
        self._states = {state.run_id: state for state in map(fold, runs)}

    def tell(self, run: str, *events: Event) -> RunState:
        """Have something happen in a run."""
        with self._lock:
            for event in events:
                self._states[run].apply(event)
            return self._states[run]

    def listed(self) -> list[dict[str, Any]]:
        """Return each run in brief."""
        with self._lock:
            return [brief(state) for state in self._states.values()]

    def changes(self, run: str, since: int) -> dict[str, Any] | None:
        """Return what is new of a run."""
        with self._lock:
            return self._states[run].changes(since) if run in self._states else None
