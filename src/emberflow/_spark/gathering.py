"""How the tasks of one stage learn from each other: at the driver, or by Spark's barrier.

Both put ``{"gathered": tag, "values": [...]}`` into the watch's queue, so that a task waits in one place only.
"""

import json
import threading
from typing import TYPE_CHECKING, Any, Protocol

from emberflow._node.watch import Watch

if TYPE_CHECKING:
    from pyspark import BarrierTaskContext


class Gathering(Protocol):
    """Start an exchange: every rank brings a value, every rank gets all of them in rank order."""

    def start(self, tag: str, value: Any, of: int | None = None) -> None:
        """Bring `value`; the answer comes as an event when `of` ranks have, all of them if None."""


class DriverGathering:
    """Through the hub on the driver: milliseconds."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def start(self, tag: str, value: Any, of: int | None = None) -> None:
        """Bring `value`; the hub answers when all have."""
        self._watch.tell_driver({"gather": tag, "value": value, "of": of})


class BarrierGathering:
    """Through ``BarrierTaskContext.allGather``: a second, but needs nobody to dial.

    Spark's call blocks for as long as a rank is missing, so it runs on a thread of its own; if the stage fails
    Spark ends the whole Python worker.
    """

    def __init__(self, watch: Watch, context: "BarrierTaskContext") -> None:
        self._watch = watch
        self._context = context

    def start(self, tag: str, value: Any, of: int | None = None) -> None:  # noqa: ARG002 - Spark's is of all
        """Bring `value`; the thread puts the answer into the queue."""
        threading.Thread(target=self._gather, args=(tag, value), name=f"emberflow-{tag}", daemon=True).start()

    def _gather(self, tag: str, value: Any) -> None:
        try:
            texts = self._context.allGather(json.dumps(value))
        except Exception as error:  # noqa: BLE001 - a broken barrier; the task decides what it means
            self._watch.queue.put({"driver_gone": True, "why": str(error)})
            return
        self._watch.queue.put({"gathered": tag, "values": [json.loads(text) for text in texts]})
