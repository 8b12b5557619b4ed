"""Which values of its metrics stand for a run: the chief's last ones, or the best of independent tasks."""

import math
from collections.abc import Collection, Iterable
from typing import NamedTuple

from emberflow._record.node_view import Series

SPEED = "rows_per_second"
LOW_IS_GOOD = ("loss", "error", "mae", "mse", "rmse")


class BestValue(NamedTuple):
    """The best of what the tasks of `ef.run_parallel` reported last under one name."""

    name: str
    value: float
    rank: int


def last_values(series: Collection[Series]) -> dict[str, float]:
    """Return the last value of each metric: the chief's in the newest attempt that has it."""
    return {each.name: each.points[-1][4] for each in series if each.rank == 0}  # in the order of attempts


def best_values(series: Collection[Series]) -> list[BestValue]:
    """Return the best of the tasks' last values of each metric: a task that diverged is never the best of several."""
    best: dict[str, BestValue] = {}
    for each in sorted(series, key=lambda one: one.rank):
        found = BestValue(each.name, each.points[-1][4], each.rank)
        if each.name not in best or _badness(found) < _badness(best[each.name]):
            best[each.name] = found
    return list(best.values())


def _badness(found: BestValue) -> float:
    """Return a number that is lower for a better value."""
    if not math.isfinite(found.value):
        return math.inf
    return found.value if is_low_good(found.name) else -found.value


def is_low_good(name: str) -> bool:
    """Tell whether a metric is better when it is lower.

    >>> is_low_good("val_loss"), is_low_good("accuracy")
    (True, False)
    """
    return any(part in name.lower() for part in LOW_IS_GOOD)


def losses_first(names: Iterable[str]) -> list[str]:
    """Return the names as people look for them: the loss first, the others in the order of their arrival.

    >>> losses_first(["accuracy", "val_loss", "loss", "box_loss"])
    ['loss', 'box_loss', 'accuracy', 'val_loss']
    """
    return sorted(names, key=lambda name: (name != "loss", "loss" not in name or name.startswith("val_")))
