"""Averages that travel as bfloat16: equal bits on all ranks, half of the bytes, nothing lost in the long run."""

import numpy as np
import pytest

from emberflow.strategies.transport.interface import Array
from emberflow.strategies.transport.ring import Ring
from emberflow.strategies.transport.rounded_sum import Residuals
from tests.unit.rings import Counted, joined, on_all

SIZE = 40_003
HOSTS = [[], ["a", "a", "b"], ["a", "b", "a", "b", "c"]]
RANKS = [2, 3, 5]
STEPS = 30


def gradient(rank: int) -> Array:
    return np.random.default_rng(rank).normal(size=SIZE).astype(np.float32)


def averages(ring: Ring, gradients: list[Array], rows: float, residuals: Residuals | None) -> list[Array]:
    """Return the average of each step's gradient."""
    seen = []
    for each in gradients:
        number = ring.bucket_exchange.begin(np.array([rows], np.float32), 1, residuals)
        ring.bucket_exchange.submit(number, 0, [each])
        seen.append(ring.bucket_exchange.wait(number)[1][0][0])
    return seen


@pytest.mark.parametrize(("ranks", "hosts"), list(zip(RANKS, HOSTS, strict=True)))
def test_ranks_have_equal_bits_and_what_rounding_drops_comes_later(ranks: int, hosts: list[str]) -> None:
    def work(ring: Ring) -> list[Array]:
        return averages(ring, [gradient(ring.rank)] * STEPS, 1.0 + ring.rank, Residuals())

    with joined(ranks, hosts=hosts) as rings:
        seen = on_all(rings, work)
    for step in range(STEPS):
        assert len({each[step].tobytes() for each in seen}) == 1
    weights = np.arange(1.0, ranks + 1)
    exact = np.average([gradient(rank) for rank in range(ranks)], axis=0, weights=weights)
    one = np.abs(seen[0][0] - exact).max()
    assert 1e-4 < one < 2e-2  # as close as eight bits are
    mean = np.abs(np.mean(seen[0], axis=0) - exact).max()
    assert mean < 2.5 * one / STEPS  # without feedback it would stay where it is


def test_it_takes_half_of_the_bytes() -> None:
    sent = {}
    for rounds in (False, True):
        with joined(2) as rings:
            counted = [Counted(ring) for ring in rings]
            on_all(
                rings,
                lambda ring: averages(ring, [gradient(0)], 1.0, Residuals() if rounds else None),  # noqa: B023
            )
            sent[rounds] = counted[0].bytes
    assert sent[True] < 0.51 * sent[False]


def test_a_step_that_overflows_does_not_spoil_later_ones() -> None:
    def work(ring: Ring) -> list[float]:
        large = gradient(0)
        large[7] = np.inf
        first, second, third = averages(ring, [large, gradient(0), gradient(0)], 1.0, Residuals())
        return [float(np.isinf(first).sum()), *(float(np.isfinite(each).all()) for each in (second, third))]

    with joined(2, encrypt=True) as rings:
        assert on_all(rings, work) == [[1.0, 1.0, 1.0]] * 2


def test_no_rows_at_all_give_zeros() -> None:
    with joined(2) as rings:
        for (zeros,) in on_all(rings, lambda ring: averages(ring, [gradient(0)], 0.0, Residuals())):
            assert not zeros.any()


def test_few_numbers_are_sent_as_they_are() -> None:
    values = np.array([1.0 + 2.0**-20, np.pi], np.float32)
    with joined(2) as rings:
        for (seen,) in on_all(rings, lambda ring: averages(ring, [values], 1.0, Residuals())):
            np.testing.assert_array_equal(seen, values)
