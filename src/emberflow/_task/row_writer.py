"""The task's side of the feed: rows from Spark or from files into spools, or straight on into the node."""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emberflow._feed.feed_progress import Progress, timed
from emberflow._feed.file_source import FileSource, Fragment, rank_batches
from emberflow._feed.handover import ReaderGoneError, send_batches, send_spool
from emberflow._feed.named_data import split_named
from emberflow._feed.shard_facts import ShardFacts
from emberflow._feed.source_errors import translated_errors
from emberflow._feed.spool import SpoolFile, SpoolWriter
from emberflow._feed.stream import first_facts
from emberflow._plan import deadlines
from emberflow._protocol.codec import Message
from emberflow._protocol.driver_messages import RowsWritten
from emberflow.errors import EmberflowError

Send = Callable[[Message], None]


class RowsEndedError(EmberflowError):
    """Spark's own side of the task failed while it delivered rows: Spark tells the driver why, and may recover."""


def spark_rows(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the batches that Spark brings; an error of Spark's own side is a `RowsEndedError`."""
    while True:
        try:
            batch = next(batches, None)
        except EmberflowError:
            raise
        except Exception as error:
            raise RowsEndedError(
                f"Spark stopped in the middle of its rows ({type(error).__name__}: {error})",
                fix="See what Spark itself says: this error's __cause__, or the executor's log.",
            ) from error
        if batch is None:
            return
        yield batch


@dataclass(frozen=True, kw_only=True)
class DataSpec:
    """The data of a run, as its tasks receive it.

    Attributes:
        frames: Names of the DataFrames whose rows come with the stage.
        files: Sources that this side reads itself, with what the driver listed of them.
        cache: Whether rows are kept for later epochs; else they stream through once.
        spool_dir: The folder of spools; None takes the node's own folder.
        spool_limit: Most bytes of one shard's spool.
    """

    frames: tuple[str, ...] = ()
    files: Mapping[str, tuple[FileSource, tuple[Fragment, ...]]] = field(default_factory=dict)
    cache: bool = True
    spool_dir: str | None = None
    spool_limit: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All names, frames first."""
        return (*self.frames, *self.files)


class RowWriter:
    """Writes one rank's rows for its node: into spools, or into a stream.

    Args:
        spec: What there is.
        rank: This rank's number among those that train.
        ranks: How many of them there are.
        rows: What Spark brings: the rows of this rank's partition.
        folder: The node's own folder.
        encrypts: Whether spools are encrypted.
    """

    def __init__(
        self,
        spec: DataSpec,
        *,
        rank: int,
        ranks: int,
        rows: Iterator[Any],
        folder: Path,
        encrypts: bool = False,
    ) -> None:
        self.progress = Progress()
        self._spec = spec
        self._rank = rank
        self._ranks = ranks
        self._rows = rows
        self._folder = Path(spec.spool_dir or folder)
        self._encrypts = encrypts
        self._spools: dict[str, SpoolFile] = {}
        self._stream: Iterator[Any] = iter(())
        self._thread: threading.Thread | None = None
        self._is_over = False
        self._facts: dict[str, ShardFacts] = {}
        self._reported = time.monotonic()

    def prepare(self, send: Send, is_over: Callable[[], bool]) -> None:
        """Spool all rows; or, when they are not kept, look at the first of them."""
        if not self._spec.cache:
            (name,) = self._spec.names
            with self.progress.timing("source"):
                self._facts[name], self._stream = first_facts(self._source(name))
            return
        with ExitStack() as writers:
            open_ = {
                name: writers.enter_context(
                    SpoolWriter(self._folder, limit=self._spec.spool_limit, encrypts=self._encrypts)
                )
                for name in self._spec.names
            }
            for name, batch in self._named_batches():
                if is_over():
                    return
                with self.progress.timing("sink"), translated_errors(name):
                    open_[name].write(batch)
                self.progress.rows += batch.num_rows
                self.progress.bytes += batch.nbytes
                self._report(send)
            self._spools = {name: writer.finish() for name, writer in open_.items()}
        self._facts = {name: spool.facts for name, spool in self._spools.items()}
        self._report(send, is_last=True)

    def facts(self) -> Mapping[str, ShardFacts]:
        """Return what is known of this rank's shards, by name."""
        return self._facts

    def hand_over(self, sock: socket.socket, on_error: Callable[[EmberflowError], None]) -> None:
        """Give the node its rows: open files now, or a stream from a thread while it trains.

        Args:
            sock: The connection to the node for rows.
            on_error: Told, on that thread, what the source of a stream raised.
        """
        for name, spool in self._spools.items():
            send_spool(sock, name, spool)
        if not self._spec.cache:
            self._thread = threading.Thread(
                target=self._stream_rows, args=(sock, on_error), name="emberflow-row-writer", daemon=True
            )
            self._thread.start()

    @property
    def waits_for_source(self) -> bool:
        """Whether a stream waits for its source."""
        return self.progress.side == "source"

    def close(self) -> None:
        """Close this side's descriptors, the node has its own; let the thread of a stream end.

        Spark's Python worker continues with another task, which must not find a thread that reads from Spark.
        """
        self._is_over = True
        for spool in self._spools.values():
            spool.close()
        if self._thread is not None:
            self._thread.join(deadlines.STREAM_END_TIMEOUT)

    def _stream_rows(self, sock: socket.socket, on_error: Callable[[EmberflowError], None]) -> None:
        (name,) = self._spec.names
        try:
            with translated_errors(name):
                self._send(sock)
        except EmberflowError as error:
            on_error(error)

    def _send(self, sock: socket.socket) -> None:
        try:
            send_batches(sock, self._stream, self.progress)
        except ReaderGoneError:  # the node has ended, which the keeper reports
            return

    def _named_batches(self) -> Iterator[tuple[str, Any]]:
        frames = self._spec.frames
        for batch in timed(self._spark_rows(), self.progress):
            if len(frames) == 1:
                yield frames[0], batch
            else:
                yield from split_named(batch, frames).items()
        for name in self._spec.files:
            for batch in timed(self._file_rows(name), self.progress):
                yield name, batch

    def _source(self, name: str) -> Iterator[Any]:
        return self._spark_rows() if name in self._spec.frames else self._file_rows(name)

    def _spark_rows(self) -> Iterator[Any]:
        rows = spark_rows(self._rows)
        while not self._is_over and (batch := next(rows, None)) is not None:
            yield batch

    def _file_rows(self, name: str) -> Iterator[Any]:
        source, fragments = self._spec.files[name]
        with translated_errors(name):
            for batch in rank_batches(source, self._rank, self._ranks, fragments):
                yield batch
                if self._is_over:
                    return

    def _report(self, send: Send, *, is_last: bool = False) -> None:
        """Tell the driver how many rows are written, at most once per second."""
        now = time.monotonic()
        if is_last or now - self._reported >= deadlines.FEED_REPORT_INTERVAL:
            self._reported = now
            send(RowsWritten(self.progress.as_dict()))
