"""How the tasks of one stage learn from each other: at the driver, or by Spark's barrier.

Both put ``{"gathered": tag, "values": [...]}`` into the watch's queue, so that a task waits in one place only; of
the meeting the values are what `meeting_of` makes of them.
"""

import json
import queue
import threading
from typing import TYPE_CHECKING, Any, Protocol

from emberflow._protocol.frames import Message
from emberflow._task.node_monitor import NodeMonitor
from emberflow._task.startup_exchange import MEET, blobs_to_bring, meeting_of, without_blobs

if TYPE_CHECKING:
    from pyspark import BarrierTaskContext


DONE = "done"  # the last exchange of a rank: it takes part in no other any more


class Exchange(Protocol):
    """Start an exchange: every rank brings a value, every rank gets all of them in rank order."""

    def start(self, tag: str, value: Any, of: int | None = None) -> None:
        """Bring `value`; the answer comes as an event when all ranks have.

        Args:
            tag: The exchange's name.
            value: What this rank brings.
            of: Only the first so many ranks take part, and those of them that are done are not waited for.
        """

    def close(self) -> None:
        """Begin no further exchange; Spark's Python worker, which lives on, keeps nothing of this one."""


class DriverExchange:
    """Through the hub on the driver: milliseconds."""

    def __init__(self, watch: NodeMonitor) -> None:
        self._watch = watch

    def start(self, tag: str, value: Any, of: int | None = None) -> None:
        """Bring `value`; the hub answers when all have."""
        self._watch.tell_driver({"gather": tag, "value": value, "of": of})

    def close(self) -> None:
        """Nothing is held."""


class BarrierExchange:
    """Through ``BarrierTaskContext.allGather``: a second, but needs nobody to dial.

    Spark's call blocks for as long as a rank is missing, so it runs on a thread of its own, one exchange after the
    other; if the stage fails Spark ends the whole Python worker. Spark's exchange is one of all ranks: those that
    are done, or never train, take part with that as their answer until all are.
    """

    def __init__(self, watch: NodeMonitor, context: "BarrierTaskContext", rank: int) -> None:
        self._watch = watch
        self._context = context
        self._rank = rank
        self._waiting: queue.Queue[tuple[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._work, name="emberflow-gather", daemon=True).start()

    def start(self, tag: str, value: Any, of: int | None = None) -> None:  # noqa: ARG002 - Spark's is of all
        """Bring `value`; the thread puts the answer into the queue."""
        self._waiting.put((tag, value))

    def close(self) -> None:
        """Let the thread end, after the exchange that it may be in."""
        self._waiting.put(None)

    def _work(self) -> None:
        try:
            while asked := self._waiting.get():
                tag, value = asked
                values = self._meet(value) if tag == MEET else self._gather(tag, value)
                self._watch.queue.put({"gathered": tag, "values": values})
        except Exception as error:  # noqa: BLE001 - a broken barrier; the task decides what it means
            self._watch.queue.put({"driver_gone": True, "why": str(error)})

    def _meet(self, mine: Message) -> Message:
        """Exchange briefs first; then schemas and facts of columns, each from one rank, unless all have them."""
        brought = self._gather(MEET, without_blobs(mine))
        shown = blobs_to_bring(self._rank, brought, mine)
        found = [mine.get("blobs", {})] if shown is None else self._gather(f"{MEET}-blobs", shown)
        blobs = {digest: blob for each in found for digest, blob in each.items()}
        return meeting_of([{**each, "blobs": blobs} for each in brought])

    def _gather(self, tag: str, value: Any) -> list[Any]:
        while True:
            answers = [json.loads(text) for text in self._context.allGather(json.dumps([tag, value]))]
            same = [theirs for other, theirs in answers if other == tag]
            if tag != DONE or len(same) == len(answers):
                return same
