"""The windows of a stream: before each, its node asks through its task how many steps all ranks take."""

import time

from emberflow._plan.plan import RunPlan
from emberflow._protocol.frames import Message
from emberflow._task.events import next_event
from emberflow._task.exchange import Exchange
from emberflow._task.node_monitor import NodeMonitor
from emberflow.errors import PeerError


class Windows:
    """Passes a node's questions on to all ranks that train, and their answer back to it."""

    def __init__(self, plan: RunPlan) -> None:
        self._plan = plan
        self._count = 0
        self._asked: float | None = None

    def next_event(self, watch: NodeMonitor) -> Message:
        """Return the next event.

        The driver knows whom an exchange waits for, and what that rank does. Where there is no driver to know it,
        the time that an exchange takes is limited here.
        """
        timeout = None
        if self._asked is not None and self._plan.meeting != "driver":
            timeout = max(self._asked + self._plan.exchange_timeout - time.monotonic(), 0.0)
        event: Message | None = next_event(watch, timeout)
        return {"feed_error": exchange_timed_out(self._plan.exchange_timeout)} if event is None else event

    def is_answered(self, event: Message, watch: NodeMonitor, gathering: Exchange) -> bool:
        """Pass the event on, if it is a question or its answer."""
        if "most" in event:
            self._count += 1
            self._asked = time.monotonic()
            trainers = sum(node.trains for node in self._plan.nodes)
            gathering.start(f"most-{self._count}", event["most"], of=trainers)
        elif str(event.get("gathered", "")).startswith("most-"):
            self._asked = None
            watch.tell_node({"most": max(event["values"])})
        else:
            return False
        return True


def exchange_timed_out(limit: float) -> PeerError:
    """Return the error of a rank that has waited for others where nobody can tell for whom."""
    return PeerError(
        f"All ranks of a stream must ask for their next rows within {limit:g} s (exchange_timeout). Received: not "
        "all did, and which one cannot be told: executors do not reach the driver.",
        fix="Pass driver_host=... with an address that executors can reach, so that the rank is named; or raise "
        "exchange_timeout.",
    )
