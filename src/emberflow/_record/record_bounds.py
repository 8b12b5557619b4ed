"""How much of a run's events its record holds: first and last, and an even selection between."""

from collections import deque
from collections.abc import Iterator

from emberflow._record.events import (
    AttemptFailed,
    Event,
    LinesPrinted,
    MetricsReported,
    NodeEnded,
    NodeUsed,
    RowsFed,
    RunEnded,
)
from emberflow._record.thinning import Thinner

METRICS_LIMIT = 1000  # of one node under one set of names, before every other one is left out
METRICS_TOTAL = 50_000
USAGE_LIMIT = 100  # of one node: what it used, and its rows
USAGE_TOTAL = 20_000
LOG_BYTES = 16 << 20  # of all nodes' output; each has an equal share, at least `LEAST_LOG_BYTES`
LEAST_LOG_BYTES = 8 << 10
TAIL_LINES = 200  # of each node's output after its share is used up: its last lines


class RecordBounds:
    """Selects the events that a record keeps.

    Args:
        nodes: How many nodes share the room for output.
    """

    def __init__(self, nodes: int = 1) -> None:
        self._metrics: Thinner[Event] = Thinner(METRICS_LIMIT, METRICS_TOTAL)
        self._usage: Thinner[Event] = Thinner(USAGE_LIMIT, USAGE_TOTAL)
        self._room = max(LOG_BYTES // max(nodes, 1), LEAST_LOG_BYTES)
        self._logs: dict[int, _Log] = {}

    def kept(self, event: Event) -> Iterator[Event]:
        """Yield what the record gets because of this event: itself, nothing, or what was held back before it."""
        match event:
            case MetricsReported(rank=rank, values=values):
                if self._metrics.takes((rank, frozenset(values)), event):
                    yield event
            case NodeUsed(rank=rank) | RowsFed(rank=rank):
                if self._usage.takes((type(event), rank), event):
                    yield event
            case LinesPrinted():
                yield from self._lines(event)
            case NodeEnded(rank=rank):
                yield from self._tail(rank, event.t)
                yield event
            case AttemptFailed() | RunEnded():  # what is held back belongs to this attempt
                yield from sorted(self._left(event.t), key=lambda each: each.t)
                yield event
            case _:
                yield event

    def _left(self, t: float) -> Iterator[Event]:
        for thinner in (self._metrics, self._usage):
            yield from thinner.last_left_out()
            thinner.begin_again()
        for rank in list(self._logs):
            yield from self._tail(rank, t)

    def _lines(self, event: LinesPrinted) -> Iterator[Event]:
        log = self._logs.setdefault(event.rank, _Log())
        size = len(event.text.encode())
        if not log.lines and log.written + size <= self._room:
            log.written += size
            yield event
        else:
            lines = event.text.split("\n")
            log.held += len(lines)
            log.lines.extend(lines)

    def _tail(self, rank: int, t: float) -> Iterator[Event]:
        log = self._logs.get(rank)
        if log is not None and log.lines:
            tail = [line[:1000] for line in log.lines]
            yield LinesPrinted(t=t, rank=rank, text="\n".join(tail), left_out=log.held - len(tail))
            log.lines.clear()
            log.held = 0


class _Log:
    """The output of one node: bytes that the record has, and the last lines that it does not have yet."""

    def __init__(self) -> None:
        self.written = self.held = 0
        self.lines: deque[str] = deque(maxlen=TAIL_LINES)
