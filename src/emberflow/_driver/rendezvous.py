"""The driver's side of exchanges among ranks: what each has brought, which ranks are missing, and since when."""

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from emberflow._protocol.codec import Message
from emberflow._protocol.driver_messages import Gather, Gathered, StartupFacts
from emberflow._task.exchange import DONE
from emberflow._task.startup_exchange import STARTUP, cluster_of


@dataclass(kw_only=True)
class PendingExchange:
    """One exchange under way.

    Attributes:
        of: Only the first so many ranks take part, and those of them that are done are not waited for; None: all.
        since: When the last rank brought its value.
        values: What each rank has brought.
    """

    of: int | None
    since: float
    values: dict[int, Any] = field(default_factory=dict)


class Rendezvous:
    """All exchanges of one attempt. One thread brings values; any may ask which ranks are missing."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._exchanges: dict[str, PendingExchange] = {}
        self._lock = threading.Lock()

    def bring(self, rank: int, message: Gather | StartupFacts) -> list[tuple[list[int], Message]]:
        """Take what a rank brings; return the answers that are complete now, each with the ranks that wait for it."""
        brought = Gather(STARTUP, message) if isinstance(message, StartupFacts) else message
        with self._lock:
            exchange = self._exchanges.setdefault(brought.tag, PendingExchange(of=brought.of, since=0.0))
            exchange.values[rank] = brought.value
            exchange.since = time.monotonic()
            concerned = [brought.tag]
            if brought.tag == DONE:  # ranks that are done are not waited for by others
                concerned += [other for other, each in self._exchanges.items() if each.of is not None]
            over = [tag for tag in concerned if not self._missing(tag)]
            complete = [(tag, self._exchanges[tag].values) for tag in over]
            for tag in over:
                if tag != DONE:
                    del self._exchanges[tag]
        return [(list(values), _answer(tag, values)) for tag, values in complete]

    def waiting(self) -> dict[str, tuple[float, list[int]]]:
        """Return by tag since when an exchange waits, and for which ranks; without the last one, `DONE`."""
        with self._lock:
            tags = [tag for tag in self._exchanges if tag != DONE]
            return {tag: (self._exchanges[tag].since, self._missing(tag)) for tag in tags}

    def _missing(self, tag: str) -> list[int]:
        exchange = self._exchanges[tag]
        there = set(exchange.values)
        if exchange.of is not None and DONE in self._exchanges:
            there |= set(self._exchanges[DONE].values)
        return [rank for rank in range(exchange.of or self._ranks) if rank not in there]


def _answer(tag: str, values: dict[int, Any]) -> Message:
    ordered = [values[rank] for rank in sorted(values)]
    return cluster_of(ordered) if tag == STARTUP else Gathered(tag, ordered)
