"""The server's values, and who has changed them: the part of periodic averaging that has no sockets."""

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from emberflow.errors import PeerError
from emberflow.strategies.periodic.combiners import CombinerError, Function, merge
from emberflow.strategies.periodic.value_layout import Layout
from emberflow.strategies.transport.interface import Array

KEPT = 1000


@dataclass(kw_only=True)
class Worker:
    """What the server knows of one worker.

    Attributes:
        attempt: The newest of its attempts that has come; older ones are turned away.
        applied: The number of its last push that counted.
        place: Where it stood in its rows at that push, in its own words.
        connections: How often it has come.
        is_here: Whether it is connected.
        is_done: Whether it has pushed its last.
    """

    attempt: int = 0
    applied: int = 0
    place: Any = None
    connections: int = 0
    is_here: bool = False
    is_done: bool = False


@dataclass(kw_only=True)
class Record:
    """What came of the pushes, for the server's report."""

    pushes: dict[int, int] = field(default_factory=dict)
    repeated: int = 0
    overlapping: int = 0
    most_stale: int = 0
    total_stale: int = 0
    last: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=KEPT))

    def add(self, rank: int, pulled: int, version: int) -> int:
        """Note a push and return its staleness: the pushes of others since this worker pulled."""
        stale = version - 1 - pulled
        self.pushes[rank] = self.pushes.get(rank, 0) + 1
        self.overlapping += stale > 0
        self.most_stale = max(self.most_stale, stale)
        self.total_stale += stale
        self.last.append((rank, pulled, version))
        return stale

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        count = sum(self.pushes.values())
        return {
            "pushes": dict(sorted(self.pushes.items())),
            "repeated": self.repeated,
            "overlapping": self.overlapping,
            "most_stale": self.most_stale,
            "mean_stale": self.total_stale / count if count else 0.0,
            "last": list(self.last),
        }


class ServerValues:
    """The values that all workers push to and pull from. Threads may call it at the same time.

    Args:
        workers: How many nodes train: what a push counts for under "mean".
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.record = Record()
        self.layout: Layout | None = None
        self._known: dict[int, Worker] = {}
        self._lost: set[int] = set()
        self._values: Array | None = None
        self._spare: Array | None = None
        self._function: Function | None = None
        self._version = 0
        self._changed = threading.Condition()

    def begin(self, layout: Layout, values: Array, function: Function | None = None) -> None:
        """Take the chief's values as the first; when it comes again they stay as they are."""
        with self._changed:
            if self._values is None:
                self.layout, self._values, self._function = layout, values, function
                self._spare = None if function is None else np.empty_like(values)
                self._changed.notify_all()

    def enter(self, rank: int, attempt: int, timeout: float) -> int:
        """Let a worker in once there are values; return the number of its connection."""
        with self._changed:
            worker = self._known.setdefault(rank, Worker(attempt=attempt))
            if attempt < worker.attempt:
                raise PeerError(
                    f"Worker {rank} has been started again. Received: attempt={attempt} of it, after "
                    f"{worker.attempt}.",
                    fix="Nothing: a task that Spark took for lost has come back, and its updates do not count.",
                )
            worker.attempt = attempt
            worker.connections += 1
            worker.is_here, worker.is_done = True, False
            if not self._changed.wait_for(lambda: self._values is not None, timeout):
                worker.is_here = False
                raise PeerError(
                    f"The chief must bring the first values within {timeout:g} s. Received: nothing.",
                    fix="Let all workers call ctx.periodic, the chief too; see the chief's log, or raise "
                    "join_timeout.",
                )
            return worker.connections

    def leave(self, rank: int, connection: int, *, is_done: bool) -> None:
        """Note that a worker is done, or that its connection has ended."""
        with self._changed:
            worker = self._known[rank]
            if connection == worker.connections:  # else it has come again meanwhile
                worker.is_here = False
                worker.is_done = worker.is_done or is_done
                self._changed.notify_all()

    def excuse(self, rank: int) -> None:
        """Note that a worker is done without ever having come."""
        with self._changed:
            self._known.setdefault(rank, Worker(is_done=True))
            self._changed.notify_all()

    def lose(self, rank: int) -> None:
        """Note that a worker will not come back."""
        with self._changed:
            self._lost.add(rank)
            self._changed.notify_all()

    def push(self, rank: int, facts: dict[str, Any], load: Array) -> tuple[int, bool]:
        """Combine a push into the values; return its staleness, and whether it counted.

        A push that has come before, from this attempt or an earlier one, does not count again.
        """
        with self._changed:
            worker, layout, values = self._known[rank], self.layout, self._values
            if layout is None or values is None or facts["attempt"] != worker.attempt:
                raise PeerError(
                    f"Worker {rank} must open before it pushes. Received: attempt={facts['attempt']}.",
                    fix="Check that all nodes run the same version of emberflow.",
                )
            if facts["number"] <= worker.applied:
                self.record.repeated += 1
                return 0, False
            self._combine(layout, values, load)
            self._version += 1
            worker.applied, worker.place = facts["number"], facts.get("place")
            return self.record.add(rank, facts["pulled"], self._version), True

    def _combine(self, layout: Layout, values: Array, load: Array) -> None:
        """Take a push into the values. Of one on which your function raises nothing is kept, not even a part."""
        changed = values if self._spare is None else self._spare
        if changed is not values:
            np.copyto(changed, values)
        try:
            for piece in layout.pieces:
                rule, centre = piece.spec.rule, piece.centre(changed)
                merge(rule, centre, piece.load(load), self.workers, self._function)
        except BaseException as error:
            raise CombinerError from error
        if changed is not values:
            self._values, self._spare = changed, values

    def pull(self, into: Array) -> int:
        """Copy the values; return their version."""
        with self._changed:
            if self._values is not None:
                np.copyto(into, self._values)
            return self._version

    def places(self) -> dict[str, Any]:
        """Return where each worker stood when it pushed last."""
        with self._changed:
            return {str(rank): worker.place for rank, worker in self._known.items() if worker.place}

    def await_others(self, rank: int, come_by: float, within: float) -> tuple[list[int], list[int]]:
        """Wait until no other worker will push any more; return those still waited for, and those not done.

        A slow worker may take as long as it likes: whoever asked is told of it, and asks again. That a worker is
        stopped is noticed by its task, which ends it.

        Args:
            rank: Who waits.
            come_by: When, on the monotonic clock, a worker that has not come at all will not come any more.
            within: Seconds until there must be an answer.
        """
        others = [other for other in range(self.workers) if other != rank]
        end = time.monotonic() + within
        with self._changed:
            while (awaited := [other for other in others if self._is_awaited(other, come_by)]) and (
                left := end - time.monotonic()
            ) > 0:
                until_come_by = come_by - time.monotonic()
                self._changed.wait(min(left, until_come_by) if until_come_by > 0 else left)
            unfinished = [
                other for other in others if other not in self._known or not self._known[other].is_done
            ]
            return awaited, unfinished

    def _is_awaited(self, rank: int, come_by: float) -> bool:
        if rank in self._lost:
            return False
        worker = self._known.get(rank)
        return time.monotonic() < come_by if worker is None else worker.is_here and not worker.is_done
