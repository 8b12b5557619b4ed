"""A page of simulated events: what the driver would tell, at the pace of a test."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from emberflow._record.events import Event
from emberflow._record.recorder import Recorder
from emberflow.page.server import PageServer
from emberflow.page.sources import LiveRuns


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
