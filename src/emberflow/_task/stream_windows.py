"""The windows of a stream: before each, its node asks through its task how many steps all ranks take."""

import time

from emberflow._plan.plan import RunPlan
from emberflow._protocol.driver_messages import Gathered
from emberflow._protocol.node_messages import StepsAgreed, StepsOffered
from emberflow._task.events import FeedFailed, TaskEvent
from emberflow._task.exchange import Exchange
from emberflow._task.node_monitor import NodeMonitor
from emberflow.errors import PeerError

TAG = "steps-"


class WindowSteps:
    """Passes a node's offers on to all ranks that train, and their agreement back to it."""

    def __init__(self, plan: RunPlan) -> None:
        self._plan = plan
        self._count = 0
        self._asked: float | None = None

    def next_event(self, monitor: NodeMonitor) -> TaskEvent:
        """Return the next event.

        The driver knows which rank an exchange waits for, and what that rank does. Where no driver can be reached,
        the time that an exchange takes is limited here.
        """
        timeout = None
        if self._asked is not None and self._plan.rendezvous != "driver":
            timeout = max(self._asked + self._plan.exchange_timeout - time.monotonic(), 0.0)
        event = monitor.next_event(timeout)
        return FeedFailed(exchange_timed_out(self._plan.exchange_timeout)) if event is None else event

    def handle(self, event: TaskEvent, monitor: NodeMonitor, exchange: Exchange) -> bool:
        """Pass the event on if it is an offer or an agreement; tell whether it was."""
        match event:
            case StepsOffered(steps):
                self._count += 1
                self._asked = time.monotonic()
                trainers = sum(node.trains for node in self._plan.nodes)
                exchange.start(f"{TAG}{self._count}", steps, of=trainers)
            case Gathered(tag, values) if tag.startswith(TAG):
                self._asked = None
                monitor.send_to_node(StepsAgreed(max(values)))
            case _:
                return False
        return True


def exchange_timed_out(limit: float) -> PeerError:
    """Return the error of a rank that has waited for others where no process can tell for which."""
    return PeerError(
        f"All ranks of a stream must ask for their next rows within {limit:g} s (exchange_timeout). Received: not "
        "all did, and which one cannot be told: executors do not reach the driver.",
        fix="Pass driver_host=... with an address that executors can reach, so that the rank is named; or raise "
        "exchange_timeout.",
    )
