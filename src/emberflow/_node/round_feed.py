"""Rounds on a node: rows that all ranks receive together, and that your function sees all at once."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from emberflow._feed.batch_connection import BatchConnection
from emberflow._feed.dataset import Shard
from emberflow._feed.feed import Feed
from emberflow._feed.named_data import split_named
from emberflow._feed.shards import Shards
from emberflow._feed.spool import Spool, SpoolFile
from emberflow._node.round_store import RoundStore
from emberflow._node.row_access import RowAccess
from emberflow._node.row_counts import RowCounts
from emberflow._node.spooled_rows import KnownColumns, SpoolSettings, finished
from emberflow._protocol.codec import Message
from emberflow._protocol.live_messages import RoundBegin, RoundDone, RoundReady, ShardSpooled
from emberflow.errors import DataError

Spools = dict[str, SpoolFile]


class Round(RowAccess):
    """One epoch of what one call of ``cluster.train`` brought.

    Its `dataset`, `rows`, `arrow` and `position` are those of ``ctx`` in `ef.run`.

    Attributes:
        number: Counts the calls, from 0.
        epoch: Which pass over the rows this is, from 0; the order of a shuffled dataset follows from it.
        epochs: How many passes there are.
        names: The names of the data.
        rank: This node's number among those that train; that of the chief is 0.
    """

    def __init__(
        self,
        message: RoundReady,
        epoch: int,
        feed: Feed,
        store: RoundStore,
        rank: int,
        *,
        is_asynchronous: bool,
    ) -> None:
        self.number = message.number
        self.epoch = epoch
        self.epochs = message.epochs
        self.names = feed.names
        self.rank = rank
        self._feed = feed
        self._store = store
        self._first_epoch = epoch
        self._is_asynchronous = is_asynchronous

    @property
    def is_chief(self) -> bool:
        """Whether this node is the chief."""
        return self.rank == 0

    @property
    def checkpoint(self) -> Path | None:
        """What a stream that continues begins with: a local folder with what `save_checkpoint` wrote; usually None.

        It is there in the first round after a start, and again when the query was started again on the same nodes.
        Restore it on every node before you train.
        """
        return self._store.checkpoint() if self.epoch == 0 else None

    @property
    def exports(self) -> bool:
        """Whether `KerasEstimator.fitStream` publishes a version of the model after this round."""
        return self._store.exports

    def save_checkpoint(self, write: Callable[[Path], object]) -> None:
        """Store the model of a stream after a round, together with the micro-batch; call it on every node.

        Only the chief stores, after the last epoch: `write(folder)` fills an empty local folder, which then is
        published atomically. Rounds of ``cluster.train`` are not stored: use ``ctx.save_checkpoint`` there.
        """
        if self.epoch == self.epochs - 1:
            self._store.save(write)

    def __repr__(self) -> str:
        return f"Round(number={self.number}, epoch={self.epoch}, epochs={self.epochs}, names={self.names})"

    def _rows_of(self, name: str) -> Feed:  # noqa: ARG002 - the feed itself refuses unknown names
        return self._feed


class RoundFeed:
    """All rounds of one node.

    Args:
        rank: This node's number.
        settings: Of the spools.
        work_dir: The node's local folder.
        columns: The columns that names had before.
        counts: Of the rows of this node.
        send: Sends a message to the driver.
        is_asynchronous: Whether each worker takes as many steps as its own rows make.

    Attributes:
        last: The number of the last round that your function took; -1 before the first.
    """

    def __init__(
        self,
        rank: int,
        settings: SpoolSettings,
        work_dir: Path,
        columns: KnownColumns,
        counts: RowCounts,
        send: Callable[[Message], None],
        *,
        is_asynchronous: bool,
    ) -> None:
        self._rank = rank
        self._settings = settings
        self._work_dir = work_dir
        self._columns = columns
        self._counts = counts
        self._send = send
        self._is_asynchronous = is_asynchronous
        self._changed = threading.Condition()
        self._kept: dict[tuple[int, str], Spools] = {}  # by round and token, until the driver decides
        self._ready: deque[tuple[RoundReady, Spools]] = deque()
        self.last = -1
        self._settled = -1  # the last round that the driver has decided on
        self._left: int | None = None  # the round that your function has taken, until it is done with it
        self._thread: int | None = None  # which has a loop over the rounds
        self._is_over = False

    def serve(self, connection: BatchConnection, begin: RoundBegin) -> None:
        """Spool what one task brings; if it does not come to its end, drop it."""
        with ExitStack() as held:
            writers = {name: held.enter_context(self._settings.writer()) for name in begin.names}
            for batch in connection.receive_stream():
                for name, rows in _named(batch, begin.names):
                    self._columns.check(name, rows.schema)
                    writers[name].write(rows)
            spools = finished(writers)
        facts = {name: spool.facts.to_json() for name, spool in spools.items()}
        self._keep(begin, spools)
        connection.send(ShardSpooled(facts))

    def on_ready(self, message: RoundReady) -> None:
        """Make a round visible, and drop what other attempts brought for it."""
        with self._changed:
            spools = self._kept.pop((message.number, message.token), {})
            self._drop(message.number)
            self._ready.append((message, spools))
            self._counts.add(_rows(spools) * message.epochs)
            self._changed.notify_all()

    def on_dropped(self, number: int) -> None:
        """Drop the rows of a round that no node will see."""
        with self._changed:
            self._drop(number)

    def end(self) -> None:
        """End after the rounds that are visible."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def close(self) -> None:
        """Close all spools."""
        with self._changed:
            for spools in (*self._kept.values(), *(spools for _, spools in self._ready)):
                _close(spools)
            self._kept.clear()
            self._ready.clear()
            self._is_over = True
            self._changed.notify_all()

    def leave_if_over(self) -> None:
        """Report the last round as done, now that your function asks for something else.

        Another thread of your function may still be busy with that round: then it is not done.
        """
        if self._thread in (None, threading.get_ident()):
            self._leave()

    def rounds(self) -> Iterator[Round]:
        """Yield each round once per epoch, until the cluster is stopped."""
        try:
            yield from self._each()
        finally:
            self._thread = None

    def _each(self) -> Iterator[Round]:
        while (ready := self._next()) is not None:
            self._thread = threading.get_ident()
            message, spools = ready
            rows = _rows(spools)
            feed = self._mapped(message, spools)
            self._left = self.last = message.number
            store = RoundStore(message, self._work_dir, is_chief=self._rank == 0)
            epochs_left = message.epochs
            try:
                for epoch in range(message.epochs):
                    yield Round(
                        message, epoch, feed, store, self._rank, is_asynchronous=self._is_asynchronous
                    )
                    self._counts.take(rows)
                    epochs_left -= 1
            finally:  # your function may leave the loop before
                self._counts.add(-rows * epochs_left)
            del feed  # the mapped files are freed before the next round is waited for
            store.close()
            self._leave()

    def _leave(self) -> None:
        left, self._left = self._left, None
        if left is not None:
            self._send(RoundDone(left))

    def _keep(self, begin: RoundBegin, spools: Spools) -> None:
        with self._changed:
            if begin.number <= self._settled or self._is_over:  # a late copy of a task that was not needed
                _close(spools)
                return
            self._kept[begin.number, begin.token] = spools

    def _drop(self, number: int) -> None:
        self._settled = max(self._settled, number)
        for key in [key for key in self._kept if key[0] <= number]:
            _close(self._kept.pop(key))

    def _next(self) -> tuple[RoundReady, Spools] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._is_over)
            return self._ready.popleft() if self._ready else None

    def _mapped(self, message: RoundReady, spools: Spools) -> Feed:
        shards = {}
        try:
            for name, text in message.shards.items():
                if name not in spools:
                    raise DataError(
                        f"The rows of round {message.number} must be on this node. Received: none of {name!r}.",
                        fix="Check that driver and executors run the same version of emberflow.",
                    )
                facts = Shards.from_json(text)
                self._columns.settle(name, facts.schema)
                spool = Spool(spools[name], name=name, schema=facts.schema)
                shards[name] = Shard(name=name, rank=message.place, spool=spool, facts=facts)
        finally:
            _close(spools)
        return Feed(shards)


def _named(batch: Any, names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if len(names) == 1:
        yield names[0], batch
    else:
        yield from split_named(batch, names).items()


def _rows(spools: Spools) -> int:
    return sum(spool.facts.rows for spool in spools.values())


def _close(spools: Spools) -> None:
    for spool in spools.values():
        spool.close()
