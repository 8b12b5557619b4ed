"""What the driver tells of a run, for everyone who wants to see it: its page, its report, its record."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from emberflow._record.events import Event
from emberflow._record.record_writer import RecordWriter
from emberflow._record.run_state import RunState


class Recorder:
    """Keeps the state of a run in bounded memory, and its record on storage where one was asked for.

    Any thread may emit and any thread may look; neither waits for storage or for a reader.

    Attributes:
        state: The run so far; other threads look at it by `looking`.
    """

    def __init__(self) -> None:
        self.state = RunState()
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._writer: RecordWriter | None = None

    def write_to(self, writer: RecordWriter) -> None:
        """Have all further events written."""
        self._writer = writer

    @property
    def folder(self) -> str | None:
        """Where the record is, if there is one."""
        return self._writer.folder if self._writer else None

    def emit(self, make: Callable[..., Event], **fields: Any) -> None:
        """Note an event of this kind, now."""
        event = make(t=time.monotonic() - self._began, **fields)
        with self._lock:
            self.state.apply(event)
        if self._writer is not None:
            self._writer.put(event)

    @contextmanager
    def looking(self) -> Iterator[RunState]:
        """Look at the state while it does not change; whoever emits waits meanwhile."""
        with self._lock:
            yield self.state

    def close(self) -> None:
        """Complete the record."""
        if self._writer is not None:
            self._writer.close()
