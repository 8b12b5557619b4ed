"""Second tasks of a rank, which Spark starts on its own: copies of a slow task, and tasks whose result was lost."""

import time
from collections.abc import Collection

from emberflow._driver.hub import Hub
from emberflow._plan import deadlines


class TaskCopies:
    """Tells tasks that Spark runs again because it lost their result from copies that it is about to end.

    Both connect after their node has returned. Spark ends a copy soon, since the task itself has succeeded; a task
    whose result was lost stays, and its attempt can never be complete.

    Args:
        hub: Where such tasks wait.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._due: dict[int, float] = {}

    def on_joined(self, rank: int, ended: Collection[int]) -> None:
        """Note that a second task of a rank has connected.

        Args:
            rank: The rank.
            ended: Ranks whose first task has ended.
        """
        if rank in ended:
            self._due[rank] = time.monotonic() + deadlines.COPY_END_TIMEOUT

    def due(self) -> float | None:
        """Return when `repeated` has to be called again at the latest."""
        return min(self._due.values(), default=None)

    def repeated(self) -> list[int]:
        """Return the ranks whose task Spark runs again though it has ended."""
        now = time.monotonic()
        over = [rank for rank, due in self._due.items() if now >= due]
        for rank in over:
            del self._due[rank]
        waiting = self._hub.copies() if over else set()
        return [rank for rank in over if rank in waiting]
