"""What nodes reported, in bounded memory: a long series is thinned evenly, its first and last entry stay."""

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Item = TypeVar("Item")
Key = tuple[Hashable, ...]

SERIES_LIMIT = 2000  # entries of one node under one set of names
TOTAL_LIMIT = 100_000  # entries of all nodes and attempts of a run: some 40 MB
NAME_SETS = 16  # of one node; a program with a new name per step has one series for all further names


class MetricLog(Generic[Item]):
    """Keeps entries by source (such as a node) and by the set of names that they report.

    Args:
        series_limit: Most entries of one series; when it is full every other entry is dropped, and from then on only
            every second, fourth, ... new one is kept.
        total_limit: Most entries of all series together, the last of each not counted.
    """

    def __init__(self, series_limit: int = SERIES_LIMIT, total_limit: int = TOTAL_LIMIT) -> None:
        self._series_limit = series_limit
        self._total_limit = total_limit
        self._series: dict[tuple[Key, frozenset[str] | None], _Series[Item]] = {}
        self._name_sets: dict[Key, int] = {}
        self._added = 0
        self._kept = 0

    def add(self, source: Key, names: Iterable[str], item: Item) -> None:
        """Take in the newest entry."""
        series = self._series_of(source, frozenset(names))
        self._kept += series.add(self._added, item)
        self._added += 1
        if len(series.kept) > self._series_limit:
            self._kept -= series.thin()
        if self._kept > self._total_limit:
            self._kept -= sum(each.thin() for each in self._series.values())

    def items(self) -> list[Item]:
        """Return what is kept, in order of arrival."""
        numbered = [entry for series in list(self._series.values()) for entry in series.entries()]
        return [item for _, item in sorted(numbered, key=lambda entry: entry[0])]

    def _series_of(self, source: Key, names: frozenset[str]) -> "_Series[Item]":
        if found := self._series.get((source, names)):
            return found
        sets = self._name_sets.get(source, 0)
        if sets >= NAME_SETS:
            return self._series.setdefault((source, None), _Series())
        self._name_sets[source] = sets + 1
        return self._series.setdefault((source, names), _Series())


class _Series(Generic[Item]):
    """Entries of one source and one set of names, each with its place in the whole log."""

    def __init__(self) -> None:
        self.kept: list[tuple[int, Item]] = []
        self._last: tuple[int, Item] | None = None
        self._stride = 1
        self._seen = 0

    def add(self, place: int, item: Item) -> int:
        """Take in an entry; return by how many `kept` has grown."""
        self._last = (place, item)
        is_kept = self._seen % self._stride == 0
        self._seen += 1
        if is_kept:
            self.kept.append(self._last)
        return int(is_kept)

    def thin(self) -> int:
        """Drop every other entry, never the first; return how many went."""
        before = len(self.kept)
        self.kept = self.kept[::2]
        self._stride *= 2
        return before - len(self.kept)

    def entries(self) -> list[tuple[int, Item]]:
        """Return what is kept, and the last entry in any case."""
        if self._last is None or (self.kept and self.kept[-1][0] == self._last[0]):
            return self.kept
        return [*self.kept, self._last]
