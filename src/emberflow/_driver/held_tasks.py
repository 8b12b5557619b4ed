"""Feeding tasks that wait for nodes whose function takes no rows: who waits for whom, said once."""

from emberflow._plan import deadlines
from emberflow._protocol.live_messages import FeedCounts


class HeldTasks:
    """Nodes that feeding tasks wait for, and that take no rows: each is named once until it takes some.

    >>> held = HeldTasks()
    >>> held.note(1, FeedCounts(100, 50, 2), now=1.0)
    >>> held.note(1, FeedCounts(100, 50, 3), now=5.0)
    >>> held.due() == 1.0 + deadlines.FEED_NOTICE, held.late(now=held.due()), held.due()
    (True, [(1, 3)], None)
    """

    def __init__(self) -> None:
        self._since: dict[int, float | None] = {}  # None: it was named
        self._last: dict[int, FeedCounts] = {}

    def note(self, rank: int, counts: FeedCounts, now: float) -> None:
        """Note what a node has just told."""
        last = self._last.get(rank, FeedCounts(0, 0))
        if not counts.held:
            self._since.pop(rank, None)
        elif counts.taken != last.taken or rank not in self._since:
            self._since[rank] = now
        self._last[rank] = counts

    def due(self) -> float | None:
        """Return when `late` has to be called at the latest."""
        since = [each for each in self._since.values() if each is not None]
        return min(since) + deadlines.FEED_NOTICE if since else None

    def late(self, now: float) -> list[tuple[int, int]]:
        """Return the ranks that are waited for too long now, and by how many tasks."""
        found = [
            rank for rank, at in self._since.items() if at is not None and now >= at + deadlines.FEED_NOTICE
        ]
        self._since |= dict.fromkeys(found)
        return [(rank, self._last[rank].held) for rank in found]
