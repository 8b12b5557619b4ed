"""How many rows your function has taken, told to the driver at intervals."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from emberflow._plan.plan import RunPlan
from emberflow._plan.telling import usage_interval
from emberflow._protocol.codec import Message
from emberflow._protocol.driver_messages import RowsTaken
from emberflow._repeating import repeated

if TYPE_CHECKING:
    from emberflow._feed.feed import Feed


@contextmanager
def rows_told(feed: "Feed | None", send: Callable[[Message], None], plan: RunPlan) -> Iterator[None]:
    """Tell for the length of the block, on a thread, whenever rows were taken; once more at its end."""
    if feed is None:
        yield
        return
    teller = _Teller(feed, send)
    with repeated(teller.tell, usage_interval(len(plan.nodes)), "emberflow-rows", at_end=True):
        yield


class _Teller:
    """Remembers what it told last: the speed is that since then."""

    def __init__(self, feed: "Feed", send: Callable[[Message], None]) -> None:
        self._feed = feed
        self._send = send
        self._told = dict.fromkeys(feed.names, (time.monotonic(), 0))

    def tell(self) -> None:
        """Tell what is new, if anything is."""
        now = time.monotonic()
        found: dict[str, Any] = {}
        for name, counters in self._feed.progress().items():
            when, rows = self._told[name]
            if int(counters["rows"]) > rows:
                speed = (int(counters["rows"]) - rows) / max(now - when, 1e-6)
                found[name] = {**counters, "rows_per_second": speed}
                self._told[name] = now, int(counters["rows"])
        if found:
            with suppress(OSError):  # the task is gone: the keeper ends this node
                self._send(RowsTaken(found))
