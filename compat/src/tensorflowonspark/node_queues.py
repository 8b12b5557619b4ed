"""The queues of a node of `TFCluster`, and the object that `ctx.mgr` is: everything in the node's own process.

Rows come in lists, as they travelled, and leave in lists, as `DataFeed` asks for them.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from queue import Empty
from typing import Any

from tensorflowonspark.marker import Marker

RUNNING, TERMINATING, STOPPED = "running", "terminating", "stopped"


class RowQueue:
    """Rows and markers, from the threads that bring them to the function that takes them.

    Args:
        most: How many lists of rows may wait; who brings more waits.

    Attributes:
        on_wait: Called by whoever is about to wait for rows; may raise why that would be in vain.
        last_marker: The last marker that was taken.
    """

    def __init__(self, most: int = 2) -> None:
        self._changed = threading.Condition()
        self._lists: deque[list[Any]] = deque()
        self._place = 0  # in the first list
        self._most = most
        self._is_ended = False
        self._drops = False
        self._error: Exception | None = None
        self.last_marker: Marker | None = None
        self.on_wait: Callable[[], None] = lambda: None

    def bring(self, rows: list[Any]) -> bool:
        """Let rows be taken; wait for room. False if they are dropped, because nobody will take them."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._lists) < self._most or self._drops)
            if not self._drops and rows:
                self._lists.append(rows)
                self._changed.notify_all()
            return not self._drops

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:  # noqa: ARG002 - as of queues
        """Add one row or marker; None is the end."""
        with self._changed:
            if item is None:
                self._is_ended = True
            else:
                self._lists.append([item])
            self._changed.notify_all()

    def take(self, most: int) -> list[Any] | None:
        """Wait for rows and return up to so many of them, or one marker alone; None at the end."""
        with self._changed:
            if not self._lists and not self._is_ended:
                self.on_wait()
                self._changed.wait_for(lambda: self._lists or self._is_ended)
            if self._error is not None:
                raise self._error
            if not self._lists:
                return None
            rows, place = self._lists[0], self._place
            taken = rows if place == 0 and len(rows) <= most else rows[place : place + most]
            self._place = place + len(taken)
            if self._place == len(rows):
                self._lists.popleft()
                self._place = 0
                self._changed.notify_all()
            if isinstance(taken[0], Marker):
                self.last_marker = taken[0]
            return taken

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Return the next row or marker; None at the end."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._lists or self._is_ended, timeout if block else 0.0):
                raise Empty
            taken = self.take(1)
        return None if taken is None else taken[0]

    def fail(self, error: Exception) -> None:
        """Raise this error in whoever takes rows: some could not be brought."""
        with self._changed:
            self._error = error
            self._is_ended = True
            self._changed.notify_all()

    def drop(self) -> None:
        """Drop what waits, and what still comes."""
        with self._changed:
            self._drops = True
            self._lists = deque(marked for marked in self._lists if marked and isinstance(marked[0], Marker))
            self._place = 0
            self._changed.notify_all()

    def empty(self) -> bool:
        """Tell whether nothing waits."""
        return not self._lists

    def qsize(self) -> int:
        """Return how many rows wait."""
        with self._changed:
            return sum(map(len, self._lists)) - self._place

    def task_done(self) -> None:
        """Do nothing: taking a row is what counts."""

    def join(self) -> None:
        """Wait until all rows are taken."""
        with self._changed:
            self._changed.wait_for(lambda: not self._lists)


class ResultQueue:
    """What your function puts on a queue of results goes to whoever asked.

    Args:
        give: Takes results.
    """

    def __init__(self, give: Callable[[Iterable[Any]], None]) -> None:
        self.give = give

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:  # noqa: ARG002 - as of queues
        """Give one result."""
        self.give([item])

    def task_done(self) -> None:
        """Do nothing."""

    def join(self) -> None:
        """Do nothing."""


class ManagedValue:
    """A value of `ctx.mgr`, whose text is its representation: programs compare with ``"'terminating'"``."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __str__(self) -> str:
        return repr(self._value)

    def __eq__(self, other: object) -> bool:
        return bool(self._value == (other._value if isinstance(other, ManagedValue) else other))

    def __hash__(self) -> int:
        return hash(self._value)

    def _getvalue(self) -> Any:
        return self._value


class NodeManager:
    """What `ctx.mgr` is in a node of `TFCluster`: queues and values by name.

    Args:
        queues: By name.
    """

    def __init__(self, queues: "dict[str, RowQueue | ResultQueue]") -> None:
        self._queues = queues
        self._values: dict[str, Any] = {"state": RUNNING}
        self.on_terminating: Callable[[], None] = lambda: None

    def get_queue(self, name: str) -> "RowQueue | ResultQueue | None":
        """Return the queue of this name, or None."""
        return self._queues.get(name)

    def get(self, key: str) -> ManagedValue:
        """Return a value."""
        return ManagedValue(self._values.get(key))

    def set(self, key: str, value: Any) -> None:
        """Set a value; the state "terminating" ends the feed of this node."""
        self._values[key] = value
        if key == "state" and value == TERMINATING:
            for queue in self._queues.values():
                if isinstance(queue, RowQueue):
                    queue.drop()
            self.on_terminating()
