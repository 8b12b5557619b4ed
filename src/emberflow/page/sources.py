"""Where a page gets its runs from: the recorder of a run of this process, or a folder of records."""

import threading
from collections.abc import Sequence
from typing import Any, Protocol

from emberflow import storage
from emberflow._plan import deadlines
from emberflow._record.json_values import json_values
from emberflow._record.record_files import RecordReader, records_in
from emberflow._record.recorder import Recorder
from emberflow._record.run_state import RunState
from emberflow._record.run_summary import summary_of
from emberflow.errors import StorageError


class Runs(Protocol):
    """What a page shows. Any thread may ask; neither call waits for anything but a lock."""

    def listed(self) -> list[dict[str, Any]]:
        """Return each run in brief, the newest first."""

    def changes(self, run: str, since: int) -> dict[str, Any] | None:
        """Return what is new of a run after a version; None if there is no such run."""


def brief(state: RunState) -> dict[str, Any]:
    """Return a run in brief, as JSON has it."""
    summary = summary_of(state)
    return vars(summary) | {"metrics": json_values(summary.metrics)}


class LiveRuns:
    """The run of one recorder."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def listed(self) -> list[dict[str, Any]]:
        """Return the run in brief."""
        with self._recorder.looking() as state:
            return [brief(state) | {"status": state.status}]  # never cut: its driver is this process

    def changes(self, run: str, since: int) -> dict[str, Any] | None:
        """Return what is new of it."""
        with self._recorder.looking() as state:
            return state.changes(since) if run == state.run_id else None


class RecordedRuns:
    """The runs in a folder, followed by a thread of their own: those that go on, and new ones.

    Args:
        path: A folder of records, or one record.

    Raises:
        StorageError: There are no runs.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._readers: dict[str, RecordReader] = {}
        self._follow(records_in(path))
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="emberflow-records", daemon=True)
        self._thread.start()

    def listed(self) -> list[dict[str, Any]]:
        """Return each run in brief, the newest first."""
        with self._lock:
            return [brief(reader.state) for reader in reversed(self._readers.values()) if reader.state.run_id]

    def changes(self, run: str, since: int) -> dict[str, Any] | None:
        """Return what is new of a run."""
        with self._lock:
            found = [each.state for each in self._readers.values() if each.state.run_id == run]
            return found[0].changes(since) if found else None

    def close(self) -> None:
        """Stop looking for news."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        is_local = storage.is_local(self._path)
        interval = deadlines.RECORD_INTERVAL if is_local else deadlines.REMOTE_RECORD_INTERVAL
        while not self._closing.wait(interval):
            try:
                self._follow(records_in(self._path))
            except StorageError:  # it may be back at the next look
                continue

    def _follow(self, folders: Sequence[str]) -> None:
        """Read what is new. Only this thread reads, and no browser waits for it: storage may take its time."""
        for folder in folders:
            reader = self._readers.get(folder)
            if reader is None:
                reader = RecordReader(folder)
                reader.look()  # nobody else has it yet
                with self._lock:
                    self._readers[folder] = reader
            elif not reader.state.is_over:
                for events in reader.news():
                    with self._lock:
                        reader.take(events)
