import doctest

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberflow._plan import steps
from emberflow.errors import ConfigError, DataError

SIZES = st.lists(st.integers(0, 300), min_size=1, max_size=8)


@settings(deadline=None)  # a busy machine may stop any call for a while
@given(rows=SIZES, batch_size=st.integers(1, 64))
def test_every_row_is_in_exactly_one_batch_of_equal_steps(rows: list[int], batch_size: int) -> None:
    if not sum(rows):
        return
    count = steps.common_steps(rows, batch_size)
    for held in rows:
        cuts = [steps.batch_rows(held, count, step) for step in range(count)]
        assert [row for cut in cuts for row in cut] == list(range(held))
        assert max(map(len, cuts)) - min(map(len, cuts)) <= 1
        assert max(map(len, cuts)) <= batch_size


@settings(deadline=None)  # a busy machine may stop any call for a while
@given(rows=SIZES, global_size=st.integers(8, 200))
def test_a_global_batch_is_never_exceeded(rows: list[int], global_size: int) -> None:
    if not sum(rows):
        return
    shares = steps.batch_shares(len(rows), global_batch_size=global_size)
    assert sum(shares) == global_size
    count = steps.common_steps(rows, shares)
    for step in range(count):
        assert sum(len(steps.batch_rows(held, count, step)) for held in rows) <= global_size


@settings(deadline=None)  # a busy machine may stop any call for a while
@given(rows=st.integers(0, 10**13), count=st.integers(1, 10**9), first=st.integers(0, 50))
def test_bounds_agree_with_batch_rows_also_for_huge_shards(rows: int, count: int, first: int) -> None:
    last = min(first + 5, count)
    if first >= last:
        return
    bounds = steps.batch_bounds(rows, count, first, last)
    expected = [steps.batch_rows(rows, count, step) for step in range(first, last)]
    assert list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)) == [
        (cut.start, cut.stop) for cut in expected
    ]


def test_no_row_at_all_is_a_data_error() -> None:
    with pytest.raises(DataError, match="0 rows over 3 workers"):
        steps.common_steps([0, 0, 0], 8)


@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"batch_size": 4, "global_batch_size": 8},
        {"batch_size": 0},
        {"batch_size": True},
        {"global_batch_size": 2},
    ],
)
def test_batch_sizes_are_checked(sizes: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        steps.batch_shares(3, **sizes)


@settings(deadline=None)  # a busy machine may stop any call for a while
@given(rows=st.integers(0, 500), seed=st.integers(0, 2**40), epoch=st.integers(0, 9), rank=st.integers(0, 9))
def test_an_order_is_a_permutation_that_repeats(rows: int, seed: int, epoch: int, rank: int) -> None:
    order = steps.epoch_order(rows, seed=seed, epoch=epoch, rank=rank)
    assert sorted(order.tolist()) == list(range(rows))
    assert np.array_equal(order, steps.epoch_order(rows, seed=seed, epoch=epoch, rank=rank))


def test_orders_differ_between_epochs_ranks_and_seeds() -> None:
    orders = {
        tuple(steps.epoch_order(50, seed=seed, epoch=epoch, rank=rank).tolist())
        for seed, epoch, rank in [(1, 0, 0), (1, 1, 0), (1, 0, 1), (2, 0, 0)]
    }
    assert len(orders) == 4


@settings(deadline=None)  # a busy machine may stop any call for a while
@given(sizes=st.lists(st.integers(0, 40), max_size=12), ranks=st.integers(1, 7))
def test_ranges_cover_every_row_once_and_are_balanced(sizes: list[int], ranks: int) -> None:
    parts = steps.balanced_ranges(sizes, ranks)
    rows = [(piece, row) for part in parts for piece, start, stop in part for row in range(start, stop)]
    assert rows == [(piece, row) for piece, size in enumerate(sizes) for row in range(size)]
    counts = [sum(stop - start for _, start, stop in part) for part in parts]
    assert max(counts) - min(counts) <= 1


@settings(deadline=None)  # a busy machine may stop any call for a while
@given(sizes=st.lists(st.integers(0, 40), max_size=12), ranks=st.integers(1, 7))
def test_wholes_give_every_piece_to_one_rank(sizes: list[int], ranks: int) -> None:
    parts = steps.balanced_assignment(sizes, ranks)
    assert sorted(piece for part in parts for piece in part) == list(range(len(sizes)))
    loads = [sum(sizes[piece] for piece in part) for part in parts]
    assert max(loads) - min(loads) <= max(sizes, default=0)


def test_examples_in_the_docstrings() -> None:
    assert doctest.testmod(steps).failed == 0
