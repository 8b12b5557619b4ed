"""The task's side of the feed: what a source raises is told as what it is, whether rows are kept or stream."""

import errno
import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from emberflow._feed.file_source import Fragment
from emberflow._feed.handover import receive_batches
from emberflow._feed.source_errors import is_transient
from emberflow._task.row_writer import DataSpec, RowsEndedError, RowWriter
from emberflow.errors import DataError, EmberflowError, StorageError

WITHIN = 20.0

FAULTS: dict[str, tuple[Exception, type[EmberflowError], str, bool]] = {
    "disk": (OSError(errno.EIO, "Input/output error", "/data/a"), StorageError, "dmesg", False),
    "permission": (
        PermissionError(errno.EACCES, "Permission denied", "/data/a"),
        StorageError,
        "chmod",
        False,
    ),
    "missing": (FileNotFoundError(errno.ENOENT, "No such file", "/data/a"), StorageError, "share", False),
    "corrupt": (pa.ArrowInvalid("Parquet magic bytes not found in footer"), DataError, "Correct", False),
    "key": (KeyError("label"), DataError, "Correct", False),
    "network": (ConnectionResetError("reset by the store"), StorageError, "max_restarts=1", True),
    "timeout": (OSError(errno.ETIMEDOUT, "Connection timed out"), StorageError, "max_restarts=1", True),
    "client": (
        type("EndpointConnectionError", (Exception,), {})("no route"),
        StorageError,
        "max_restarts",
        True,
    ),
}


class Breaking:
    """A source of ten batches that raises after the third."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def fragments(self) -> list[Fragment]:
        return [Fragment(path="a", rows=1000)]

    def read(self, fragment: Fragment, start: int, stop: int | None) -> Iterator[Any]:
        for _ in range(3):
            yield pa.RecordBatch.from_pydict({"x": range(100)})
        raise self.error


def writer_of(source: Any, folder: Path, *, cache: bool) -> RowWriter:
    spec = DataSpec(files={"train": (source, tuple(source.fragments()))}, cache=cache)
    return RowWriter(spec, rank=0, ranks=1, rows=iter(()), folder=folder)


def from_spark(rows: Iterator[Any], folder: Path, *, cache: bool) -> RowWriter:
    return RowWriter(DataSpec(frames=("train",), cache=cache), rank=0, ranks=1, rows=rows, folder=folder)


def error_of(writer: RowWriter) -> EmberflowError:
    """Return the error that the rows end with, before the node has them or while they stream."""
    told: queue.Queue[EmberflowError] = queue.Queue()
    ours, theirs = socket.socketpair()
    theirs.settimeout(WITHIN)
    with ours, theirs, closing(writer):
        try:
            writer.prepare(lambda _: None, lambda: False)
        except EmberflowError as error:
            return error
        writer.hand_over(ours, told.put)
        received = receive_batches(theirs)
        for _ in range(3):
            assert next(received).num_rows == 100
        return told.get(timeout=WITHIN)


@pytest.mark.parametrize("cache", [True, False], ids=["kept", "streamed"])
@pytest.mark.parametrize("fault", list(FAULTS))
def test_what_a_source_raises_is_told_as_what_it_is(tmp_path: Path, fault: str, cache: bool) -> None:
    raised, kind, remedy, transient = FAULTS[fault]
    error = error_of(writer_of(Breaking(raised), tmp_path, cache=cache))
    assert type(error) is kind
    assert "data['train']" in str(error)
    assert f"{type(raised).__name__}: {raised}" in str(error)
    assert remedy in error.fix
    assert error.__cause__ is raised
    assert is_transient(error) is transient


@pytest.mark.parametrize("cache", [True, False], ids=["kept", "streamed"])
def test_spark_that_stops_in_the_middle_is_told_apart_from_a_source(tmp_path: Path, cache: bool) -> None:
    rows = Breaking(pa.ArrowInvalid("Expected to be able to read 8 bytes")).read(Fragment(path=""), 0, None)
    error = error_of(from_spark(rows, tmp_path, cache=cache))
    assert isinstance(error, RowsEndedError)
    assert "ArrowInvalid: Expected to be able to read 8 bytes" in str(error)


def endless(asked: list[int]) -> Iterator[Any]:
    for number in range(10_000):
        asked.append(number)
        yield pa.RecordBatch.from_pydict({"x": range(10_000)})


def test_a_node_that_has_gone_is_no_error_of_the_rows(tmp_path: Path) -> None:
    told: list[EmberflowError] = []
    asked: list[int] = []
    writer = from_spark(endless(asked), tmp_path, cache=False)
    ours, theirs = socket.socketpair()
    with ours, closing(writer):
        writer.prepare(lambda _: None, lambda: False)
        theirs.close()
        writer.hand_over(ours, told.append)
    assert not told
    assert len(asked) < 10
    assert not [thread for thread in threading.enumerate() if thread.name == "emberflow-row-writer"]


def test_a_task_that_is_over_asks_for_no_more_rows(tmp_path: Path) -> None:
    """The node ended early: the thread leaves the rest to Spark, whose worker goes on to another task."""
    asked: list[int] = []
    writer = from_spark(endless(asked), tmp_path, cache=False)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(WITHIN)
        writer.prepare(lambda _: None, lambda: False)
        writer.hand_over(ours, lambda error: pytest.fail(str(error)))
        received = receive_batches(theirs)
        next(received)
        closer = threading.Thread(target=writer.close)
        closer.start()
        rows = 10_000 + sum(batch.num_rows for batch in received)
        closer.join(WITHIN)
        assert rows == 10_000 * len(asked) < 10_000 * 10_000
