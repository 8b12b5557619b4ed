"""Streams on a node: partitions of rows, each visible once it is complete and committed, at the node's own pace."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from emberflow._feed.batch_connection import BatchConnection
from emberflow._feed.spool import Spool, SpoolFile
from emberflow._node.row_counts import RowCounts
from emberflow._node.spooled_rows import KnownColumns, SpoolSettings
from emberflow._protocol.codec import Message
from emberflow._protocol.live_messages import (
    CommitAnswer,
    CommitAsked,
    PartitionBegin,
    PartitionKept,
    PartitionsTaken,
    PartitionWelcome,
)
from emberflow.config import check_count
from emberflow.errors import ClusterError, DataError

if TYPE_CHECKING:
    from emberflow._feed.dataset import Names
    from emberflow._feed.padding import PadTo

Attempt = tuple[str, int, int]  # feed, partition, attempt


class RowStream:
    """The rows of a stream on this node. Iterating yields Arrow record batches, until the cluster is stopped."""

    def __init__(self, name: str, feed: "StreamFeed") -> None:
        self._name = name
        self._feed = feed

    def __iter__(self) -> Iterator[Any]:
        while (batch := self._feed.take(None)) is not None:
            yield batch

    def next(self, rows: int) -> Any:
        """Return a record batch of up to so many rows, as soon as there are any; None at the end of the stream."""
        check_count("rows", rows)
        first = self._feed.take(rows)
        if first is None:
            return None
        held, count = [first], first.num_rows
        while count < rows and (more := self._feed.take(rows - count, waits=False)) is not None:
            held.append(more)
            count += more.num_rows
        return held[0] if len(held) == 1 else pa.concat_batches(held)

    def dataset(
        self,
        *,
        batch_size: int,
        features: "Names | None" = None,
        label: "Names | None" = None,
        weight: str | None = None,
        columns: Sequence[str] | None = None,
        shapes: "Mapping[str, Any] | None" = None,
        dtypes: Mapping[str, Any] | None = None,
        null_value: Mapping[str, Any] | None = None,
        pad_to: "Mapping[str, PadTo] | None" = None,
        pad_value: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the rows as a ``tf.data.Dataset`` that ends with the stream; it waits for the first rows.

        A batch has `batch_size` rows, or fewer where no more are there yet. For the others see ``ctx.dataset``.
        """
        from emberflow._feed.dataset import DatasetOptions
        from emberflow._feed.live_dataset import make_live_dataset
        from emberflow._feed.padding import PadOptions

        options = DatasetOptions(
            batch_size=batch_size,
            features=features,
            label=label,
            weight=weight,
            columns=columns,
            shapes=shapes or {},
            dtypes=dtypes or {},
            null_value=null_value or {},
            pad=PadOptions(pad_to=pad_to or {}, pad_value=pad_value or {}),
        )
        check_count("batch_size", batch_size)
        first = self.next(batch_size)
        if first is None:
            raise DataError(
                f"A dataset needs the first rows to know their columns. Received: {self._name!r} ended without rows.",
                fix="Feed the cluster before you stop it.",
            )
        return make_live_dataset(self._name, first, self.next, options)


class StreamFeed:
    """One stream of one node.

    Args:
        name: Its name.
        settings: Of the spools.
        columns: The columns that names had before.
        counts: Of the rows of this node.
        send: Sends a message to the driver.
        backlog: Bytes that may wait to be taken; no partition is accepted above that.
    """

    def __init__(
        self,
        name: str,
        settings: SpoolSettings,
        columns: KnownColumns,
        counts: RowCounts,
        send: Callable[[Message], None],
        backlog: int,
    ) -> None:
        self._name = name
        self._settings = settings
        self._columns = columns
        self._counts = counts
        self._send = send
        self._most = backlog
        self._changed = threading.Condition()
        self._taking = threading.RLock()
        self._bytes = 0
        self._visible: deque[tuple[Attempt, SpoolFile]] = deque()
        self._current: tuple[Attempt, int, Iterator[Any]] | None = None
        self._piece: Any = None  # what is left of the current batch
        self._answers: dict[Attempt, bool | None] = {}
        self._stopped: set[str] = set()
        self._is_over = False
        self._is_closed = False

    def serve(self, connection: BatchConnection, begin: PartitionBegin) -> None:
        """Spool one partition, and make it visible if this attempt is the first to be complete."""
        attempt = (begin.feed, begin.partition, begin.attempt)
        self._await_room(begin.feed)
        if not self._is_granted(attempt, None):
            connection.send(PartitionWelcome(is_committed=True))
            return
        connection.send(PartitionWelcome(is_committed=False))
        with self._settings.writer() as writer:
            for batch in connection.receive_stream():
                self._columns.check(self._name, batch.schema)
                writer.write(batch)
            spool = writer.finish()
        try:
            self._columns.settle(self._name, spool.facts.schema)
            is_granted = self._is_granted(attempt, spool.facts.rows)
        except BaseException:
            spool.close()
            raise
        self._keep(attempt, spool) if is_granted else spool.close()
        connection.send(PartitionKept())

    def on_answer(self, message: CommitAnswer) -> None:
        """Pass on the driver's answer to the thread that waits for it."""
        attempt = (message.feed, message.partition, message.attempt)
        with self._changed:
            if attempt in self._answers:
                self._answers[attempt] = message.is_granted
                self._changed.notify_all()

    def on_stopped(self, feed: str) -> None:
        """Drop what was not taken of a feeding job, and what still comes of it."""
        with self._changed:
            self._stopped.add(feed)
            kept = deque(each for each in self._visible if each[0][0] != feed)
            for attempt, spool in self._visible:
                if attempt[0] == feed:
                    self._bytes -= spool.facts.bytes
                    self._counts.add(-spool.facts.rows)
                    spool.close()
            self._visible = kept
            self._changed.notify_all()

    def end(self) -> None:
        """End after the partitions that are visible."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def close(self) -> None:
        """Drop all rows, and wake every thread that waits."""
        with self._changed:
            self._is_closed = self._is_over = True
            for _, spool in self._visible:
                spool.close()
            self._visible.clear()
            self._changed.notify_all()

    def take(self, most: int | None, *, waits: bool = True) -> Any:
        """Return the next rows of one partition, at most so many; None at the end, or if it must not wait."""
        with self._taking:
            while self._piece is None:
                if not self._advance() and not self._begin_next(waits=waits):
                    return None
            batch, self._piece = self._piece, None
            if most is not None and batch.num_rows > most:
                batch, self._piece = batch.slice(0, most), batch.slice(most)
            else:
                self._advance()  # so that a partition is reported with its last row
            self._counts.take(batch.num_rows)
            return batch

    def _advance(self) -> bool:
        """Go on to the next batch of the current partition; False where it has no more."""
        if self._current is None:
            return False
        attempt, size, batches = self._current
        self._piece = next(batches, None)
        if self._piece is None:
            self._finish(attempt, size)
        return True

    def _begin_next(self, *, waits: bool) -> bool:
        with self._changed:
            if waits:
                self._changed.wait_for(lambda: self._visible or self._is_over)
            if not self._visible:
                return False
            attempt, file = self._visible.popleft()
        try:
            batches = Spool(file, name=self._name).batches()
        finally:
            file.close()  # the mapping stays
        self._current = (attempt, file.facts.bytes, batches)
        return True

    def _finish(self, attempt: Attempt, size: int) -> None:
        self._current = None
        with self._changed:
            self._bytes -= size
            self._changed.notify_all()
        self._send(PartitionsTaken(attempt[0], (attempt[1],)))

    def _keep(self, attempt: Attempt, spool: SpoolFile) -> None:
        with self._changed:
            if attempt[0] in self._stopped or self._is_closed:
                spool.close()
                return
            self._bytes += spool.facts.bytes
            self._visible.append((attempt, spool))
            self._counts.add(spool.facts.rows)
            self._changed.notify_all()

    def _await_room(self, feed: str) -> None:
        """Wait until there is room for another partition: the task waits as long, and so does Spark."""

        def has_room() -> bool:
            return self._bytes < self._most or self._is_closed or feed in self._stopped

        with self._changed:
            if not has_room():
                with self._counts.held():
                    self._changed.wait_for(has_room)
            self._check_open()

    def _is_granted(self, attempt: Attempt, rows: int | None) -> bool:
        """Ask the driver; wait for its answer as long as the cluster lives."""
        feed, partition, number = attempt
        with self._changed:
            self._answers[attempt] = None
        try:
            self._send(CommitAsked(feed, partition, number, rows))
            with self._changed:
                self._changed.wait_for(lambda: self._answers[attempt] is not None or self._is_closed)
                self._check_open()
                return bool(self._answers[attempt])
        finally:
            with self._changed:
                del self._answers[attempt]

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClusterError(
                f"The cluster must run while it is fed. Received: a partition of {self._name!r} after its end.",
                fix="Feed it before cluster.stop, or start another one.",
            )
