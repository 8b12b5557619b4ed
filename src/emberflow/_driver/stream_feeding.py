"""Streams seen from the driver: one feeding job per epoch, and the ledger of its partitions."""

import functools
import itertools
from collections.abc import Callable
from typing import Any

from emberflow._driver.fed_data import FedFrames, FedRdds
from emberflow._driver.feeding_job import FeedingJobs, refusal_error
from emberflow._driver.feeding_state import FeedingState
from emberflow._plan.plan import RunPlan
from emberflow._protocol.codec import Message
from emberflow._protocol.live_messages import CommitAnswer, CommitAsked, FeedStopped, PartitionsTaken
from emberflow._task.feeding_task import StreamTask
from emberflow._task.node_dialing import FeedAccess
from emberflow.errors import ClusterError, DataError, EmberflowError


class Ledger:
    """The partitions of one feeding job: who has committed each, and which are taken. The first commit wins.

    >>> ledger = Ledger("train", "tag")
    >>> ledger.commit(0, CommitAsked("train-0", 5, 1, None)), ledger.commit(0, CommitAsked("train-0", 5, 1, 10))
    (True, True)
    >>> ledger.commit(1, CommitAsked("train-0", 5, 2, 10)), ledger.rows, ledger.untaken()
    (False, 10, {0})
    """

    def __init__(self, name: str, tag: str) -> None:
        self.name = name
        self.tag = tag
        self.rows = 0
        self.is_stopped = False
        self._committed: dict[int, tuple[int, int]] = {}
        self._taken: set[int] = set()

    def commit(self, rank: int, asked: CommitAsked) -> bool:
        """Tell whether this attempt may go on, or has won if it is complete."""
        if self.is_stopped or asked.partition in self._committed:
            return False
        if asked.rows is not None:
            self._committed[asked.partition] = (rank, asked.attempt)
            self.rows += asked.rows
        return True

    def take(self, partitions: tuple[int, ...]) -> None:
        """Note that the function of their node has taken these partitions."""
        self._taken.update(partitions)

    def untaken(self) -> set[int]:
        """Return the ranks that hold partitions which were not taken."""
        return {rank for partition, (rank, _) in self._committed.items() if partition not in self._taken}


class StreamFeeding:
    """All streams of one cluster."""

    def __init__(
        self,
        plan: RunPlan,
        state: FeedingState,
        jobs: FeedingJobs,
        send: Callable[[int, Message], None],
        broadcast: Callable[[Message], None],
    ) -> None:
        self._plan = plan
        self._state = state
        self._jobs = jobs
        self._send = send
        self._broadcast = broadcast
        self._numbers = itertools.count()
        self._ledgers: dict[str, Ledger] = {}

    def train(self, data: FedFrames | FedRdds, name: str, access: FeedAccess, epochs: int) -> int:
        """Feed the nodes, once per epoch; return the rows of the first when all are taken."""
        rows = []
        for _ in range(epochs):
            number = next(self._numbers)
            feed = f"{name}-{number}"
            tag = f"emberflow-{self._plan.run_id}-{self._plan.attempt}-stream-{number}"
            task = StreamTask(access=access, name=name, feed=feed)
            ledger = Ledger(name, tag)
            rows.append(self._fed(ledger, feed, functools.partial(data.feed_stream, task)))
            if ledger.is_stopped:
                break
        return rows[0]

    def on_commit_asked(self, rank: int, asked: CommitAsked) -> None:
        """Answer a node that asks whether the rows of a partition are wanted."""
        with self._state.changed:
            ledger = self._ledgers.get(asked.feed)
            is_granted = ledger is not None and ledger.commit(rank, asked)
            self._state.changed.notify_all()
        self._send(rank, CommitAnswer(asked.feed, asked.partition, asked.attempt, is_granted))

    def on_taken(self, taken: PartitionsTaken) -> None:
        """Note that partitions are taken."""
        with self._state.changed:
            if taken.feed in self._ledgers:
                self._ledgers[taken.feed].take(taken.partitions)
            self._state.changed.notify_all()

    def stop(self, name: str) -> None:
        """End the feeding jobs of a stream; their calls return as if all rows had been brought."""
        with self._state.changed:
            feeds = {feed: ledger for feed, ledger in self._ledgers.items() if ledger.name == name}
            for ledger in feeds.values():
                ledger.is_stopped = True
            self._state.changed.notify_all()
        for feed, ledger in feeds.items():
            self._jobs.cancel_later(ledger.tag)
            self._broadcast(FeedStopped(feed))

    def _fed(self, ledger: Ledger, feed: str, collect: Callable[[], list[Any]]) -> int:
        with self._state.changed:
            self._ledgers[feed] = ledger
        try:
            self._bring(ledger, feed, collect)
            self._await_taken(ledger, feed)
        finally:
            with self._state.changed:
                del self._ledgers[feed]
        if not ledger.rows and not ledger.is_stopped:
            raise DataError(
                "The data must have at least one row. Received: none.",
                fix="Check the DataFrame's filters and joins (df.count() should be above 0).",
            )
        return ledger.rows

    def _bring(self, ledger: Ledger, feed: str, collect: Callable[[], list[Any]]) -> None:
        try:
            for row in self._jobs.run(ledger.tag, collect):
                raise refusal_error(row["error"])
        except EmberflowError:
            if ledger.is_stopped and self._state.error is None:
                return  # this is why the job was cancelled
            self._broadcast(FeedStopped(feed))
            raise
        except BaseException:
            self._broadcast(FeedStopped(feed))
            raise

    def _await_taken(self, ledger: Ledger, feed: str) -> None:
        self._state.wait(lambda: ledger.is_stopped or not ledger.untaken() - self._state.ended)
        lost = [] if ledger.is_stopped else sorted(ledger.untaken())
        if lost and not self._plan.is_asynchronous:
            raise ClusterError(
                f"Your function must take all rows of {feed}. Received: it returned on rank {lost[0]} before.",
                fix="Loop over ctx.stream() to its end, or call ctx.stop_feeding() before you return.",
            )
