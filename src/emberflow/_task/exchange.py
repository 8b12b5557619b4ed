"""How the tasks of one stage exchange values: at the driver, or by Spark's barrier.

Both put the answer into the monitor's events, so that a task waits in one place only.
"""

import queue
import threading
from collections.abc import Callable
from typing import Any, Protocol

from emberflow._protocol.codec import read
from emberflow._protocol.driver_messages import Cluster, Gather, Gathered, NoCluster, StartupFacts
from emberflow._protocol.messages import decode, encode
from emberflow._task.events import DriverGone
from emberflow._task.node_monitor import NodeMonitor
from emberflow._task.startup_exchange import STARTUP, blobs_to_show, cluster_of, without_blobs

AllGather = Callable[[str], list[str]]

DONE = "done"  # the last exchange of a rank: it takes part in no other any more


class Exchange(Protocol):
    """Start an exchange: every rank brings a value, every rank gets an answer when all have."""

    def start_up(self, facts: StartupFacts) -> None:
        """Bring what the others must know before your function begins; the answer is `Cluster` or `NoCluster`."""

    def start(self, tag: str, value: Any, of: int | None = None) -> None:
        """Bring `value`; the answer is `Gathered` with the values of all ranks.

        Args:
            tag: The exchange's name.
            value: What this rank brings.
            of: Only the first so many ranks take part, and those of them that are done are not waited for.
        """

    def close(self) -> None:
        """Begin no further exchange, and keep nothing: Spark's Python worker continues with other tasks."""


class DriverExchange:
    """Through the hub on the driver: milliseconds."""

    def __init__(self, monitor: NodeMonitor) -> None:
        self._monitor = monitor

    def start_up(self, facts: StartupFacts) -> None:
        """Bring the facts; the hub answers when all have."""
        self._monitor.send_to_driver(facts)

    def start(self, tag: str, value: Any, of: int | None = None) -> None:
        """Bring `value`; the hub answers when all have."""
        self._monitor.send_to_driver(Gather(tag, value, of))

    def close(self) -> None:
        """Nothing is held."""


class BarrierExchange:
    """Through ``BarrierTaskContext.allGather``: a second, but no connection to the driver is needed.

    Spark's call blocks for as long as a rank is missing, so it runs on a thread of its own, one exchange after the
    other; if the stage fails Spark ends the whole Python worker. Spark's exchange is one of all ranks: those that
    are done, or never train, take part with that as their answer until all are.
    """

    def __init__(self, monitor: NodeMonitor, all_gather: AllGather, rank: int) -> None:
        self._monitor = monitor
        self._all_gather = all_gather
        self._rank = rank
        self._waiting: queue.Queue[Gather | StartupFacts | None] = queue.Queue()
        threading.Thread(target=self._work, name="emberflow-exchange", daemon=True).start()

    def start_up(self, facts: StartupFacts) -> None:
        """Bring the facts; the thread puts the answer into the events."""
        self._waiting.put(facts)

    def start(self, tag: str, value: Any, of: int | None = None) -> None:
        """Bring `value`; the thread puts the answer into the events."""
        self._waiting.put(Gather(tag, value, of))

    def close(self) -> None:
        """Let the thread end, after the exchange that it may be in."""
        self._waiting.put(None)

    def _work(self) -> None:
        try:
            while mine := self._waiting.get():
                self._monitor.events.put(
                    self._start_up(mine)
                    if isinstance(mine, StartupFacts)
                    else Gathered(mine.tag, self._gather(mine))
                )
        except Exception as error:  # noqa: BLE001 - a broken barrier; the task decides what it means
            self._monitor.events.put(DriverGone(str(error)))

    def _start_up(self, mine: StartupFacts) -> Cluster | NoCluster:
        """Exchange briefs first; then schemas and facts of columns, each from one rank, unless all have them."""
        briefs = self._gather(Gather(STARTUP, without_blobs(mine)))
        facts = [read(StartupFacts, each) for each in briefs]
        shown = blobs_to_show(self._rank, facts, mine)
        blobs = [mine.blobs] if shown is None else self._gather(Gather(f"{STARTUP}-blobs", shown))
        return cluster_of(facts, {digest: blob for each in blobs for digest, blob in each.items()})

    def _gather(self, gather: Gather) -> list[Any]:
        text = encode(gather).decode()
        while True:
            answers = [decode(each.encode()) for each in self._all_gather(text)]
            same = [each.value for each in answers if isinstance(each, Gather) and each.tag == gather.tag]
            if gather.tag != DONE or len(same) == len(answers):
                return same
