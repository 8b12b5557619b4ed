"""A queue for runs that share one driver: each starts when there are slots for all of its nodes.

Spark itself would queue them too, but silently, and the start deadline would pass meanwhile.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class SlotQueue:
    """Counts the slots that runs hold, by application and kind of slot."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._taken: dict[tuple[str, str], int] = {}

    @contextmanager
    def held(
        self, application: str, nodes: int, slots: int, say: Callable[[str], None], what: str = "slots"
    ) -> Iterator[None]:
        """Hold `nodes` of the application's `slots` for the length of the block; wait until they are free."""
        place = (application, what)
        with self._changed:
            if self._taken.get(place, 0) + nodes > slots:
                say(f"waiting: other runs of this driver hold {self._taken[place]} of {slots} {what}")
            self._changed.wait_for(lambda: self._taken.get(place, 0) + nodes <= slots)
            self._taken[place] = self._taken.get(place, 0) + nodes
        try:
            yield
        finally:
            with self._changed:
                self._taken[place] -= nodes
                self._changed.notify_all()


DRIVER_SLOTS = SlotQueue()  # one for the process: its runs share the slots of its Spark application
