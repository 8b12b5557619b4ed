"""Until when all nodes of an attempt must be ready, and how long running tasks may stay silent."""

import time
from collections.abc import Mapping

from emberflow._plan import deadlines
from emberflow._plan.plan import RunPlan


class StartDeadline:
    """The deadlines of an attempt's start.

    Args:
        plan: Whose `start_timeout` holds; it does not run while Spark computes the rows that barrier tasks wait for.
        hosts: By rank, those that have joined; the attempt adds to it.
    """

    def __init__(self, plan: RunPlan, hosts: Mapping[int, str]) -> None:
        self._plan = plan
        self._hosts = hosts
        self._has_barrier = plan.launch == "barrier"
        self._silence_ends: float | None = None
        self._ends: float | None = None
        if not (plan.waits_for_rows and self._has_barrier):
            self._ends = time.monotonic() + plan.start_timeout

    def due(self) -> tuple[float | None, float | None]:
        """Return the moments at which `is_silent` and `has_passed` must be asked at the latest."""
        return (self._ends, self._silence_ends)

    def on_joined(self) -> None:
        """A node has joined, and is one of `hosts`."""
        if len(self._hosts) == 1 and self._plan.waits_for_rows:
            self._ends = time.monotonic() + self._plan.start_timeout
        self._silence_ends = None
        if len(self._hosts) == len(self._plan.nodes) and self._ends:
            self._ends += deadlines.START_GRACE

    def on_tasks_running(self) -> None:
        """Spark says that tasks run, so that they should join soon."""
        is_running = self._has_barrier and self._ends is not None
        if is_running and not self._hosts and self._silence_ends is None:
            self._silence_ends = time.monotonic() + deadlines.UNDIALLED_TIMEOUT

    def is_silent(self) -> bool:
        """Tell once that tasks run and none joins. They keep the deadline of the start themselves from now on."""
        if self._silence_ends is None or time.monotonic() < self._silence_ends:
            return False
        self.end()
        return True

    def has_passed(self) -> bool:
        """Tell once that not all nodes are ready in time."""
        if self._ends is None or time.monotonic() < self._ends:
            return False
        self._ends = None
        return True

    def end(self) -> None:
        """All nodes are ready, or the attempt stops."""
        self._ends = self._silence_ends = None
