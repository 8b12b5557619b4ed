"""How many rows your function has taken, told to the driver at intervals."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from emberflow._plan.plan import RunPlan
from emberflow._plan.telling import usage_interval
from emberflow._protocol.codec import Message
from emberflow._protocol.driver_messages import RowsTaken

if TYPE_CHECKING:
    from emberflow._feed.feed import Feed


@contextmanager
def rows_told(feed: "Feed | None", send: Callable[[Message], None], plan: RunPlan) -> Iterator[None]:
    """Tell for the length of the block, on a thread, whenever rows were taken; once more at its end."""
    if feed is None:
        yield
        return
    over, interval = threading.Event(), usage_interval(len(plan.nodes))
    teller = _Teller(feed, send)
    thread = threading.Thread(target=teller.run, args=(over, interval), name="emberflow-rows", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class _Teller:
    """Remembers what it told last: the speed is that since then."""

    def __init__(self, feed: "Feed", send: Callable[[Message], None]) -> None:
        self._feed = feed
        self._send = send
        self._told: dict[str, tuple[float, int]] = {}

    def run(self, over: threading.Event, interval: float) -> None:
        """Tell until it is over."""
        now = time.monotonic()
        self._told = dict.fromkeys(self._feed.names, (now, 0))
        while not over.wait(interval):
            self._tell()
        self._tell()

    def _tell(self) -> None:
        now = time.monotonic()
        found: dict[str, Any] = {}
        for name, counters in self._feed.progress().items():
            when, rows = self._told[name]
            if int(counters["rows"]) > rows:
                speed = (int(counters["rows"]) - rows) / max(now - when, 1e-6)
                found[name] = {**counters, "rows_per_second": speed}
                self._told[name] = now, int(counters["rows"])
        if found:
            self._send(RowsTaken(found))
