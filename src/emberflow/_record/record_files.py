"""Where a record is: a folder per run, in it numbered segments of lines, on any storage.

On local disk lines are appended to a segment, whole lines in one write. Where a store cannot append, the newest
segment is written again, whole and atomically, until it is full: a reader sees complete lines in either case, and
the number of files stays small.
"""

import os
import re
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from emberflow import storage
from emberflow._record.events import Event
from emberflow._record.lines import read_lines
from emberflow._record.run_state import RunState
from emberflow.errors import StorageError

SEGMENT_BYTES = 1 << 20  # of a store that cannot append: what is written again at each turn
SEGMENT = re.compile(r"events-\d{5}\.jsonl$")


def name_of_record(run_id: str, at: float) -> str:
    """Return the name of a run's folder; names sort by time.

    >>> name_of_record("1f0a", 0.0)
    '19700101-000000-1f0a'
    """
    return f"{datetime.fromtimestamp(at, UTC):%Y%m%d-%H%M%S}-{run_id}"


class RecordFile:
    """The record of one run, to be written by this process only.

    Args:
        folder: The run's own folder, which must not be there yet.

    Raises:
        StorageError: It cannot be written, or it is the record of another run.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._number = 0
        self._lines: list[str] = []
        self._bytes = 0
        self._fd: int | None = None
        self._claim()

    def write(self, lines: list[str]) -> None:
        """Add lines to the record; when it returns they can be read."""
        if not lines:
            return
        data = "".join(f"{line}\n" for line in lines).encode(errors="replace")
        if self._fd is not None:
            os.write(self._fd, data)
            return
        self._lines.append(data.decode())
        self._bytes += len(data)
        storage.write_bytes(self._segment(), "".join(self._lines).encode())
        if self._bytes >= SEGMENT_BYTES:
            self._number, self._lines, self._bytes = self._number + 1, [], 0

    def close(self) -> None:
        """Release the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _segment(self) -> str:
        return storage.join(self.folder, f"events-{self._number:05}.jsonl")

    def _claim(self) -> None:
        """Make sure that nobody else writes here."""
        parent = storage.sibling(self.folder, "")
        if is_record(parent):
            raise StorageError(
                f"`record` must be a folder of runs, or one that can be made. Received: {parent}, which is the "
                "record of one run, and a record has one writer.",
                fix=f'Pass the folder above it: record="{storage.sibling(parent, "")}".',
            )
        local = storage.local_path(self.folder)
        if local is not None:
            self._fd = _claimed_locally(local, self.folder)
            return
        mine = storage.join(self.folder, f"writer-{uuid.uuid4().hex}")
        storage.write_bytes(mine, b"")
        if storage.list_folder(self.folder) != [mine]:
            with suppress(StorageError):
                storage.delete(mine)
            raise _has_writer(self.folder)


def _claimed_locally(folder: Path, shown: str) -> int:
    """Return the descriptor of the first segment of a new record; whole lines are appended to it."""
    try:
        folder.mkdir(parents=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        return os.open(folder / "events-00000.jsonl", flags, 0o644)
    except OSError as error:
        if isinstance(error, FileExistsError) and folder.is_dir():
            raise _has_writer(shown) from error
        raise StorageError(
            f"The record of a run must be written to a folder of its own. Received: {shown}: {error}.",
            fix="Pass record= with a folder that this process can write to.",
        ) from error


def _has_writer(folder: str) -> StorageError:
    return StorageError(
        f"A record has one writer. Received: {folder}, which another run is writing or has written.",
        fix="Start the run again: it gets a name of its own. Two drivers may share record=, since each run has its "
        "own folder in it.",
    )


def is_record(path: str) -> bool:
    """Tell whether a folder is the record of one run."""
    return any(SEGMENT.search(each) for each in storage.list_folder(path))


def records_in(path: str) -> list[str]:
    """Return the records in a folder, the oldest first; the folder itself if it is one.

    Raises:
        StorageError: There is none.
    """
    below = storage.list_folder(path)
    if any(SEGMENT.search(each) for each in below):
        return [path]
    found = [each for each in below if re.search(r"\d{8}-\d{6}-\w+$", each)]
    if not found:
        what = "a folder without runs" if below else "no such folder, or an empty one"
        raise StorageError(
            f"The path must be a folder of recorded runs, or one of them. Received: {path}, {what}.",
            fix=f'Record a run there first: ef.run(..., record="{path}"), or set spark.emberflow.record.',
        )
    return found


class RecordReader:
    """Follows one record: each look applies what is new to `state`.

    A line without its end is left for the next look: its writer may be in the middle of it.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.state = RunState()
        self._segment = 0
        self._offset = 0

    def look(self) -> bool:
        """Read what is new; tell whether there was anything."""
        before = self.state.version
        for events in self.news():
            self.take(events)
        return self.state.version > before

    def take(self, events: Iterable[Event]) -> None:
        """Apply what `news` has yielded."""
        for event in events:
            self.state.apply(event)

    def news(self) -> Iterator[list[Event]]:
        """Yield what is new, segment by segment, for `state`: whoever shares it waits for no storage so."""
        while True:
            path = storage.join(self.folder, f"events-{self._segment:05}.jsonl")
            yield self._new_events(path)
            following = storage.join(self.folder, f"events-{self._segment + 1:05}.jsonl")
            if storage.is_local(path) or not storage.exists(following):
                return
            self._segment, self._offset = self._segment + 1, 0

    def _new_events(self, path: str) -> list[Event]:
        if not storage.exists(path):
            return []
        with storage.open_file(path) as file:
            file.seek(self._offset)
            data = bytes(file.read())
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return list(read_lines(whole.decode(errors="replace").splitlines()))


def read_record(folder: str) -> RunState:
    """Return the state of a recorded run, as far as its record goes."""
    reader = RecordReader(folder)
    reader.look()
    return reader.state
