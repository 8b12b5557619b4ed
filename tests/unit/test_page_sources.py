"""Recorded runs that a page follows: storage that takes its time holds up nobody who looks."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from emberflow._plan import deadlines
from emberflow._record.lines import to_line
from emberflow._record.record_files import RecordFile, RecordReader
from emberflow.errors import StorageError
from emberflow.page.sources import RecordedRuns
from tests.unit.runs_simulated import succeeded

WITHIN = 20.0
NAME = "20260101-000000-0a1b2c3d"


def test_whoever_looks_does_not_wait_for_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "RECORD_INTERVAL", 0.01)
    events = list(succeeded(steps=20))
    record = RecordFile(str(tmp_path / NAME))
    record.write([to_line(event) for event in events[:10]])
    reading, may_read = threading.Event(), threading.Event()
    read = RecordReader._new_events

    def slow(self: RecordReader, path: str) -> Any:
        if self.state.version:  # a later look
            reading.set()
            assert may_read.wait(WITHIN)
        return read(self, path)

    monkeypatch.setattr(RecordReader, "_new_events", slow)
    with closing(RecordedRuns(str(tmp_path))) as runs, ThreadPoolExecutor() as pool:
        try:
            assert reading.wait(WITHIN)
            assert pool.submit(runs.listed).result(WITHIN)[0]["run_id"] == "0a1b2c3d"
            changes = pool.submit(runs.changes, "0a1b2c3d", 0).result(WITHIN)
            assert changes is not None
            assert changes["version"] == 10
            record.write([to_line(event) for event in events[10:]])
            record.close()
        finally:
            may_read.set()
        end = time.monotonic() + WITHIN
        while runs.listed()[0]["status"] != "succeeded":
            assert time.monotonic() < end
            threading.Event().wait(0.01)


def test_a_store_that_fails_between_two_segments_costs_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emberflow._record.record_files.SEGMENT_BYTES", 2000)
    events = list(succeeded(steps=50))
    record = RecordFile(f"memory://fails-between-segments/{NAME}")
    for event in events:
        record.write([to_line(event)])
    reader = RecordReader(record.folder)
    read, calls = RecordReader._new_events, list[str]()

    def failing(self: RecordReader, path: str) -> Any:
        calls.append(path)
        if len(calls) == 3:
            raise StorageError("The store does not answer.", fix="Wait.")
        return read(self, path)

    monkeypatch.setattr(RecordReader, "_new_events", failing)
    with pytest.raises(StorageError):
        reader.look()
    assert 0 < reader.state.version < len(events)
    reader.look()
    assert reader.state.version == len(events)
