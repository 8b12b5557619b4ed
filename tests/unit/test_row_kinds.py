"""Means and sums over rows, told apart by numbers alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from emberflow.strategies.data_parallel.row_kinds import Kind, Kinds, kind_of, merged

ROWS = np.array([1.0, 4.0, -2.0, 0.5, 3.0])


def judged(number: Callable[[Any], Any]) -> Kind:
    parts = [ROWS[:2], ROWS[2:]]
    return kind_of(np.asarray(number(ROWS)), [np.asarray(number(each)) for each in parts], [2, 3], 1e-6)


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (np.mean, Kind.MEAN),
        (lambda _: np.float64(7), Kind.MEAN),
        (np.sum, Kind.SUM),
        (lambda rows: np.histogram(rows, [-5, 0, 2, 5])[0].astype(float), Kind.SUM),
        (np.max, Kind.NEITHER),
        (np.var, Kind.NEITHER),
        (lambda rows: np.sum(rows) / np.sqrt(len(rows)), Kind.NEITHER),
        (lambda rows: np.mean(rows) + np.sum(rows), Kind.NEITHER),
        (lambda _: np.float64(0), Kind.UNKNOWN),
        (lambda _: np.float64("nan"), Kind.UNKNOWN),
    ],
)
def test_kinds_are_told_from_parts(number: Callable[[Any], Any], kind: Kind) -> None:
    assert judged(number) is kind


def test_trials_that_found_nothing_do_not_count_and_others_must_agree() -> None:
    assert merged([Kind.UNKNOWN, Kind.SUM, Kind.SUM]) is Kind.SUM
    assert merged([Kind.MEAN, Kind.SUM]) is Kind.NEITHER
    assert merged([Kind.UNKNOWN]) is Kind.UNKNOWN


def test_ranks_agree_by_their_codes() -> None:
    mine = Kinds(outputs=(Kind.SUM, Kind.UNKNOWN), additions=(Kind.MEAN,), states=(Kind.SUM,))
    other = Kinds(outputs=(Kind.SUM, Kind.STEPS), additions=(Kind.SUM,), states=(Kind.UNKNOWN,))
    assert Kinds.from_codes([mine.to_codes(), other.to_codes()]) == Kinds(
        outputs=(Kind.SUM, Kind.STEPS), additions=(Kind.NEITHER,), states=(Kind.SUM,)
    )
