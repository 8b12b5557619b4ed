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
        self._told = dict.fromkeys(feed.names, (time.monotonic(), 0, 0.0))

    def tell(self) -> None:
        """Tell the counters of all data, if any has moved: of some alone nobody could tell which is the training."""
        counters = self._feed.progress()
        moved = [name for name, each in counters.items() if int(each["rows"]) > self._told[name][1]]
        if not moved:
            return
        now = time.monotonic()
        for name in moved:
            when, before, _ = self._told[name]
            rows = int(counters[name]["rows"])
            self._told[name] = now, rows, (rows - before) / max(now - when, 1e-6)
        found: dict[str, Any] = {
            name: {**each, "rows_per_second": self._told[name][2]} for name, each in counters.items()
        }
        with suppress(OSError):  # the task is gone: the keeper ends this node
            self._send(RowsTaken(found))
