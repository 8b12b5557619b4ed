"""Counters of one feed: rows, bytes, and the time spent waiting for its source and its sink."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Literal, TypeVar

Item = TypeVar("Item")


@dataclass(kw_only=True)
class Progress:
    """The counters of one side of a feed; one thread writes, any thread may read.

    Attributes:
        rows: Rows passed on.
        bytes: Their size in Arrow or numpy.
        source_seconds: Time spent waiting for the source (Spark, or files).
        sink_seconds: Time spent waiting for the sink (the trainer).
        seconds: Time spent waiting or working in total.
        side: The side that it waits for at this moment; empty while it works.
    """

    rows: int = 0
    bytes: int = 0
    source_seconds: float = 0.0
    sink_seconds: float = 0.0
    seconds: float = 0.0
    side: str = field(default="", init=False)

    @property
    def waiting_for(self) -> Literal["source", "sink", "neither"]:
        """The side that most of the time was spent waiting for, if it was more than half."""
        if self.source_seconds > self.seconds / 2:
            return "source"
        return "sink" if self.sink_seconds > self.seconds / 2 else "neither"

    def as_dict(self) -> dict[str, float | int | str]:
        """Return the counters, the speed and the waiting side, for a report."""
        speed = self.rows / self.seconds if self.seconds else 0.0
        counters = asdict(self)
        del counters["side"]
        return {**counters, "rows_per_second": speed, "waiting_for": self.waiting_for}

    @contextmanager
    def timing(self, side: Literal["source", "sink"]) -> Iterator[None]:
        """Count the time of the block as waiting for one side."""
        start = time.perf_counter()
        self.side = side
        try:
            yield
        finally:
            self.side = ""
            spent = time.perf_counter() - start
            self.seconds += spent
            if side == "source":
                self.source_seconds += spent
            else:
                self.sink_seconds += spent

    @contextmanager
    def working(self) -> Iterator[None]:
        """Count the time of the block as work."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - start


def timed(items: Iterable[Item], progress: Progress) -> Iterator[Item]:
    """Yield the items; the time until each arrives counts as waiting for the source."""
    source = iter(items)
    while True:
        with progress.timing("source"):
            try:
                item = next(source)
            except StopIteration:
                return
        yield item
