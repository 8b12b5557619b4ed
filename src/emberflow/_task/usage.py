"""What a node uses of its host, told to the driver at intervals: memory, processors, GPUs."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from emberflow._plan.telling import usage_interval
from emberflow._protocol.driver_messages import NodeUsage
from emberflow._repeating import repeated
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
    reporter = _Reporter(monitor, outcomes)
    with repeated(reporter.report, usage_interval(nodes), "emberflow-usage"):
        yield


class _Reporter:
    """Remembers what it saw last: processors are those kept busy since then."""

    def __init__(self, monitor: NodeMonitor, outcomes: NodeOutcomes) -> None:
        self._monitor = monitor
        self._outcomes = outcomes
        self._before: tuple[float, float] | None = None

    def report(self) -> None:
        """Report what the node uses now, if it is there."""
        found = _used(self._monitor.pid)
        if found is None:
            return
        memory, seconds = found
        now, before = time.monotonic(), self._before
        cpus = (seconds - before[1]) / (now - before[0]) if before else 0.0
        self._before = now, seconds
        gpus = self._outcomes.gpu_monitor.seen() if self._outcomes.gpu_monitor else []
        self._monitor.send_to_driver(NodeUsage(memory, round(max(cpus, 0.0), 2), tuple(gpus)))


def _used(pid: int | None) -> tuple[int, float] | None:
    """Return the bytes of memory and the processor seconds of a process; None if it is not there."""
    try:
        resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, IndexError, ValueError):
        return None
    return resident * PAGE_BYTES, (int(fields[11]) + int(fields[12])) / TICKS
