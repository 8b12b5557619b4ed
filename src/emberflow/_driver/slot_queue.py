"""A queue for runs that share one driver: each starts when there are slots for all of its nodes.

Spark itself would queue them too, but silently, and the start deadline would pass meanwhile.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from emberflow._driver.allocation import MOST_EXECUTORS
from emberflow.errors import ClusterError

SHOWN_HOLDERS = 3


class SlotQueue:
    """Counts the slots that runs hold, by application and kind of slot."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._taken: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)  # by holder
        self._kept: Counter[tuple[str, str]] = Counter()  # of these, the ones of live clusters

    @contextmanager
    def held(
        self,
        application: str,
        nodes: int,
        slots: int,
        say: Callable[[str], None],
        what: str = "task slots",
        *,
        holder: str = "another run",
        is_kept: bool = False,
    ) -> Iterator[None]:
        """Hold `nodes` of the application's `slots` for the length of the block; wait until they are free.

        Args:
            application: Whose slots they are.
            nodes: How many to hold.
            slots: How many there are.
            say: Told what this waits for, if it has to wait, and again when others hold them.
            what: What they are called.
            holder: What those that wait are told who holds them.
            is_kept: Whether a live cluster keeps them until the user stops it.

        Raises:
            ClusterError: Live clusters hold so many that waiting might never end.
        """
        place = (application, what)
        with self._changed:
            said = ""
            while self._taken[place].total() + nodes > slots:
                self._check_kept(place, nodes, slots, is_kept=is_kept)
                if (text := _in_words(nodes, slots, what, self._taken[place])) != said:
                    say(text)
                    said = text
                self._changed.wait()
            self._check_kept(place, nodes, slots, is_kept=is_kept)
            self._taken[place][holder] += nodes
            self._kept[place] += nodes if is_kept else 0
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._taken[place] -= Counter({holder: nodes})
                self._kept[place] -= nodes if is_kept else 0
                self._changed.notify_all()

    def _check_kept(self, place: tuple[str, str], nodes: int, slots: int, *, is_kept: bool) -> None:
        """Refuse to wait for a live cluster, which ends when the user stops it: maybe after this very call."""
        kept = self._kept[place]
        if kept and kept + nodes + is_kept > slots:  # jobs that feed live clusters need a slot beside theirs
            raise ClusterError(
                f"{nodes} nodes need {place[1]} of their own, and live clusters of this driver hold theirs until "
                f"they are stopped. Received: {kept} of {slots} {place[1]} held.",
                fix="Stop a live cluster first: cluster.stop(). Or pass fewer workers, or start the session with a "
                f"higher {MOST_EXECUTORS}.",
            )


def _in_words(nodes: int, slots: int, what: str, taken: Counter[str]) -> str:
    """Return what a run waits for.

    >>> _in_words(2, 3, "task slots", Counter({"run mnist 3f2a": 2}))
    'waits for 2 of 3 task slots; run mnist 3f2a holds 2'
    """
    holders = [f"{holder} holds {count}" for holder, count in taken.items() if count]
    if len(holders) > SHOWN_HOLDERS:
        holders = [f"{len(holders)} other runs hold {taken.total()}"]
    return f"waits for {nodes} of {slots} {what}; {', '.join(holders)}"


DRIVER_SLOTS = SlotQueue()  # one for the process: its runs share the slots of its Spark application
