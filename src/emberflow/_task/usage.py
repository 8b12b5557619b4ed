"""What a node uses of its host, told to the driver at intervals: memory, processors, GPUs."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from emberflow._plan.telling import usage_interval
from emberflow._protocol.driver_messages import NodeUsage
from emberflow._task.node_monitor import NodeMonitor
from emberflow._task.node_outcomes import NodeOutcomes

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def usage_reported(monitor: NodeMonitor, outcomes: NodeOutcomes, nodes: int) -> Iterator[None]:
    """Report on a thread for the length of the block.

    Args:
        monitor: Knows the node's process, and sends to the driver.
        outcomes: Has what is seen of the node's GPUs.
        nodes: How many nodes the run has.
    """
    over = threading.Event()
    thread = threading.Thread(
        target=_report, args=(monitor, outcomes, usage_interval(nodes), over), daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _report(monitor: NodeMonitor, outcomes: NodeOutcomes, interval: float, over: threading.Event) -> None:
    before: tuple[float, float] | None = None
    while not over.wait(interval):
        found = _used(monitor.pid)
        if found is None:
            continue
        memory, seconds = found
        now = time.monotonic()
        cpus = (seconds - before[1]) / (now - before[0]) if before else 0.0
        before = now, seconds
        gpus = outcomes.gpu_monitor.seen() if outcomes.gpu_monitor else []
        monitor.send_to_driver(NodeUsage(memory, round(max(cpus, 0.0), 2), tuple(gpus)))


def _used(pid: int | None) -> tuple[int, float] | None:
    """Return the bytes of memory and the processor seconds of a process; None if it is not there."""
    try:
        resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, IndexError, ValueError):
        return None
    return resident * PAGE_BYTES, (int(fields[11]) + int(fields[12])) / TICKS
