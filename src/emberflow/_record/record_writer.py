"""The thread that writes a run's record: nobody waits for its storage."""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable

from emberflow import storage
from emberflow._plan import deadlines
from emberflow._record.events import Event, RunEnded, RunPlanned, StillRunning
from emberflow._record.lines import to_line
from emberflow._record.record_bounds import RecordBounds
from emberflow._record.record_files import RecordFile
from emberflow.errors import EmberflowError

log = logging.getLogger("emberflow")

QUEUE = 20_000  # events that wait for storage; of more the new ones are counted only


class RecordWriter:
    """Takes events from any thread, and writes them at intervals.

    Args:
        folder: The run's own folder; see `RecordFile`.
    """

    def __init__(self, folder: str) -> None:
        self._file = RecordFile(folder)
        self._interval = (
            deadlines.RECORD_INTERVAL if storage.is_local(folder) else deadlines.REMOTE_RECORD_INTERVAL
        )
        self._waiting: deque[Event] = deque()
        self._left_out = 0
        self._closing = threading.Event()
        self._bounds = RecordBounds()
        self._written = time.monotonic()
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="emberflow-record", daemon=True)
        self._thread.start()

    @property
    def folder(self) -> str:
        """Where the record is."""
        return self._file.folder

    def put(self, event: Event) -> None:
        """Have an event written soon; does not wait."""
        if len(self._waiting) < QUEUE or isinstance(event, RunEnded):
            self._waiting.append(event)
        else:
            self._left_out += 1

    def close(self) -> None:
        """Write what is left, for some seconds at most."""
        self._closing.set()
        self._thread.join(deadlines.RECORD_END_TIMEOUT)
        if self._thread.is_alive():
            log.warning("The record %s is incomplete: its storage does not answer.", self.folder)

    def _run(self) -> None:
        try:
            while not self._closing.wait(self._interval):
                self._write()
            self._write()
        except (EmberflowError, OSError) as error:
            log.warning("The record %s ends here; the run goes on. %s", self.folder, error)
            self._waiting = deque(maxlen=0)
        finally:
            self._file.close()

    def _write(self) -> None:
        lines = [to_line(kept) for event in self._taken() for kept in self._kept(event)]
        now = time.monotonic()
        if not lines and now - self._written >= deadlines.RECORD_SIGN_OF_LIFE:
            lines = [to_line(StillRunning(t=now - self._began))]
        if lines:
            self._file.write(lines)
            self._written = now

    def _taken(self) -> Iterable[Event]:
        while self._waiting:
            yield self._waiting.popleft()

    def _kept(self, event: Event) -> Iterable[Event]:
        if isinstance(event, RunPlanned):
            self._bounds = RecordBounds(len(event.nodes))
        if isinstance(event, RunEnded) and self._left_out:
            event = RunEnded(t=event.t, value=event.value, failure=event.failure, left_out=self._left_out)
        return self._bounds.kept(event)
