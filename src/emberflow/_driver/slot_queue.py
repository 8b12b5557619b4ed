"""A queue for runs that share one driver: each starts when there are slots for all of its nodes.

Spark itself would queue them too, but silently, and the start deadline would pass meanwhile.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_changed = threading.Condition()
_taken: dict[tuple[str, str], int] = {}


@contextmanager
def held_slots(
    application: str, nodes: int, slots: int, say: Callable[[str], None], what: str = "slots"
) -> Iterator[None]:
    """Hold `nodes` of the application's `slots` for the length of the block; wait until they are free."""
    place = (application, what)
    with _changed:
        if _taken.get(place, 0) + nodes > slots:
            say(f"waiting: other runs of this driver hold {_taken[place]} of {slots} {what}")
        _changed.wait_for(lambda: _taken.get(place, 0) + nodes <= slots)
        _taken[place] = _taken.get(place, 0) + nodes
    try:
        yield
    finally:
        with _changed:
            _taken[place] -= nodes
            _changed.notify_all()
