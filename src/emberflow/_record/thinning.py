"""Which entries of a long series are kept, decided when each comes: an append-only log cannot drop any later."""

from collections.abc import Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Thinner(Generic[Item]):
    """Lets the first entries of each series through, then every second, every fourth, and so on.

    The number of kept entries grows with the logarithm of all: of a million with a limit of 1,000 some 11,000.

    Args:
        limit: Entries of one series after which the distance doubles.
        total: Entries of all series together that `limit` is lowered for.

    >>> thinner = Thinner[int](limit=2)
    >>> [n for n in range(12) if thinner.takes("loss", n)], thinner.last_left_out()
    ([0, 1, 2, 4, 8], [11])
    """

    def __init__(self, limit: int = 1000, total: int = 50_000) -> None:
        self._limit = limit
        self._total = total
        self._series: dict[Hashable, _Place[Item]] = {}

    def takes(self, key: Hashable, item: Item) -> bool:
        """Tell whether the newest entry of a series is kept."""
        place = self._series.get(key)
        if place is None:
            place = self._series[key] = _Place()
        place.seen += 1
        place.left_out = None
        if (place.seen - 1) % place.stride:
            place.left_out = item
            return False
        place.kept += 1
        if place.kept >= max(min(self._limit, self._total // len(self._series)), 2):
            place.kept, place.stride = 0, place.stride * 2
        return True

    def last_left_out(self) -> list[Item]:
        """Return the newest entry of each series that was not kept, and forget them: so the last one is kept too."""
        left = [place.left_out for place in self._series.values() if place.left_out is not None]
        for place in self._series.values():
            place.left_out = None
        return left

    def begin_again(self) -> None:
        """Let the next entry of each series through, as a first one; then as few as before."""
        for place in self._series.values():
            place.seen = 0


class _Place(Generic[Item]):
    """Where a series stands."""

    def __init__(self) -> None:
        self.seen = self.kept = 0
        self.stride = 1
        self.left_out: Item | None = None
