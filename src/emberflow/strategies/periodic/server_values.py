"""The server's values and the state of its workers: the part of periodic averaging without sockets."""

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from emberflow.errors import PeerError
from emberflow.strategies.periodic.combiners import CombinerError, Function, merge, told
from emberflow.strategies.periodic.value_layout import Layout
from emberflow.strategies.transport.interface import Array

KEPT = 1000  # the last pushes that the report lists


@dataclass(kw_only=True)
class Worker:
    """What the server knows of one worker.

    Attributes:
        attempt: The newest of its attempts that has connected; older ones are refused.
        applied: The number of its last push that was merged.
        place: Where it was in its rows at that push; the server does not interpret it.
        connections: How often it has connected.
        is_connected: Whether it is connected.
        is_done: Whether it has pushed for the last time.
    """

    attempt: int = 0
    applied: int = 0
    place: Any = None
    connections: int = 0
    is_connected: bool = False
    is_done: bool = False


@dataclass(kw_only=True)
class Record:
    """Statistics of the pushes, for the server's report."""

    pushes: dict[int, int] = field(default_factory=dict)
    repeated: int = 0
    overlapping: int = 0
    most_stale: int = 0
    total_stale: int = 0
    last: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=KEPT))

    def add(self, rank: int, pulled: int, version: int) -> int:
        """Count a push and return its staleness: the pushes of other workers since this worker pulled."""
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
        """Start with the chief's values; when the chief connects again they stay as they are."""
        with self._changed:
            if self._values is None:
                self.layout, self._values, self._function = layout, values, function
                self._spare = None if function is None else np.empty_like(values)
                self._changed.notify_all()

    def enter(self, rank: int, attempt: int, timeout: float) -> int:
        """Register a worker once there are values; return the number of its connection."""
        with self._changed:
            worker = self._known.setdefault(rank, Worker(attempt=attempt))
            if attempt < worker.attempt:
                raise PeerError(
                    f"Worker {rank} has been restarted. Received: its attempt={attempt}, after "
                    f"{worker.attempt}.",
                    fix="Nothing: a task that Spark had given up has connected again, and its updates do not count.",
                )
            worker.attempt = attempt
            worker.connections += 1
            worker.is_connected, worker.is_done = True, False
            if not self._changed.wait_for(lambda: self._values is not None, timeout):
                worker.is_connected = False
                raise PeerError(
                    f"The chief must send the initial values within {timeout:g} s. Received: nothing.",
                    fix="Call ctx.periodic on all workers, the chief included; see the chief's log, or raise "
                    "join_timeout.",
                )
            return worker.connections

    def leave(self, rank: int, connection: int, *, is_done: bool) -> None:
        """Note that a worker is done, or that its connection has ended."""
        with self._changed:
            worker = self._known[rank]
            if connection == worker.connections:  # else it has connected again in the meantime
                worker.is_connected = False
                worker.is_done = worker.is_done or is_done
                self._changed.notify_all()

    def mark_done(self, rank: int) -> None:
        """Note that a worker is done without ever having registered."""
        with self._changed:
            self._known.setdefault(rank, Worker(is_done=True))
            self._changed.notify_all()

    def mark_lost(self, rank: int) -> None:
        """Note that a worker will not connect again."""
        with self._changed:
            self._lost.add(rank)
            self._changed.notify_all()

    def push(self, rank: int, fields: dict[str, Any], push: Array) -> tuple[int, bool]:
        """Merge a push into the values; return its staleness, and whether it was merged.

        A push that was received before, from this attempt or an earlier one, is not merged again.
        """
        with self._changed:
            worker, layout, values = self._known[rank], self.layout, self._values
            if layout is None or values is None or fields["attempt"] != worker.attempt:
                raise PeerError(
                    f"Worker {rank} must open before it pushes. Received: attempt={fields['attempt']}.",
                    fix="Check that all nodes run the same version of emberflow.",
                )
            if fields["number"] <= worker.applied:
                self.record.repeated += 1
                return 0, False
            self._merge(layout, values, push, rank)
            self._version += 1
            worker.applied, worker.place = fields["number"], fields.get("place")
            return self.record.add(rank, fields["pulled"], self._version), True

    def _merge(self, layout: Layout, values: Array, push: Array, rank: int) -> None:
        """Merge a push into the values atomically: if your function raises, none of the push is kept."""
        changed = values if self._spare is None else self._spare
        if changed is not values:
            np.copyto(changed, values)
        try:
            for number, piece in enumerate(layout.pieces):
                function = self._function and told(self._function, rank=rank, variable=number)
                merge(piece.spec.rule, piece.values(changed), piece.push(push), self.workers, function)
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
        """Return where each worker was in its rows at its last push."""
        with self._changed:
            return {str(rank): worker.place for rank, worker in self._known.items() if worker.place}

    def await_others(self, rank: int, connect_by: float, within: float) -> tuple[list[int], list[int]]:
        """Wait until no other worker will push any more; return those still expected, and those not done.

        There is no limit for a slow worker: the caller is told which workers are still expected, and asks again. The
        task of a stopped worker notices that and ends it.

        Args:
            rank: The worker that waits.
            connect_by: When, on the monotonic clock, a worker that never connected is no longer expected.
            within: Seconds until there must be an answer.
        """
        others = [other for other in range(self.workers) if other != rank]
        end = time.monotonic() + within
        with self._changed:
            while (expected := [other for other in others if self._is_expected(other, connect_by)]) and (
                left := end - time.monotonic()
            ) > 0:
                until_connect_by = connect_by - time.monotonic()
                self._changed.wait(min(left, until_connect_by) if until_connect_by > 0 else left)
            unfinished = [
                other for other in others if other not in self._known or not self._known[other].is_done
            ]
            return expected, unfinished

    def _is_expected(self, rank: int, connect_by: float) -> bool:
        if rank in self._lost:
            return False
        worker = self._known.get(rank)
        return time.monotonic() < connect_by if worker is None else worker.is_connected and not worker.is_done
