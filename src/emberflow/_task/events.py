"""The next thing that a task hears, from its node, the keeper or the driver."""

import queue
from typing import Any

from emberflow._protocol.frames import Message
from emberflow._task.node_monitor import NodeMonitor


class QuitError(Exception):
    """The driver has told this task to end, or is gone."""


def next_event(watch: NodeMonitor, timeout: float | None = None) -> Any:
    """Return the next event, or None at the timeout; `QuitError` when the driver wants us gone."""
    try:
        event = watch.queue.get(timeout=timeout)
    except queue.Empty:
        return None
    if "quit" in event or "driver_gone" in event:
        raise QuitError
    return event


def is_end(event: Message) -> bool:
    """Tell whether the node's process is over."""
    return "exit" in event or "keeper_gone" in event
