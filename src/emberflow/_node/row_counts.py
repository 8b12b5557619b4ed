"""How many rows a live node has taken, and how many wait: told to the driver about once per second."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from emberflow._plan import deadlines
from emberflow._protocol.codec import Message
from emberflow._protocol.live_messages import FeedCounts


class RowCounts:
    """Counts rows of all feeds of a node. Any thread may count; one of its own sends, when there is news.

    Args:
        send: Sends a message to the driver.
    """

    def __init__(self, send: Callable[[Message], None]) -> None:
        self._send = send
        self._changed = threading.Condition()
        self._taken = 0
        self._waiting = 0
        self._held = 0
        self._sent = FeedCounts(0, 0)
        self._is_closed = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, rows: int) -> None:
        """Count rows that wait to be taken; a negative number of those that were dropped."""
        self._count(waiting=rows)

    def take(self, rows: int) -> None:
        """Count rows that your function has taken."""
        self._count(taken=rows, waiting=-rows)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Count a feeding task that waits for room, for the length of the block."""
        self._count(held=1)
        try:
            yield
        finally:
            self._count(held=-1)

    def close(self) -> None:
        """Send the last news, and end the thread."""
        with self._changed:
            self._is_closed.set()
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(deadlines.FEEDS_CLOSE_TIMEOUT)

    def _count(self, *, taken: int = 0, waiting: int = 0, held: int = 0) -> None:
        with self._changed:
            self._taken += taken
            self._waiting += waiting
            self._held += held
            if self._thread is None and not self._is_closed.is_set():
                self._thread = threading.Thread(target=self._tell, name="emberflow-counts", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _tell(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._news() or self._is_closed.is_set())
                news = self._news()
                if news is not None:
                    self._sent = news
            if news is not None:
                with suppress(OSError):  # nobody listens any more: the node is about to be ended
                    self._send(news)
            if self._is_closed.wait(deadlines.FEED_COUNTS_INTERVAL) and self._news() is None:
                return

    def _news(self) -> FeedCounts | None:
        now = FeedCounts(self._taken, self._waiting, self._held)
        return now if now != self._sent else None
