"""The rounds in which members exchange: every number arrives, once."""

import pytest
from benchmarks import latency

from emberflow.strategies.transport.circles import members_of
from emberflow.strategies.transport.circulant import distances, gather_rounds, reduce_rounds, spans


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 7, 8, 13, 64, 100])
@pytest.mark.parametrize("nbytes", [8, 1 << 20])
def test_all_members_end_with_the_sum(ranks: int, nbytes: int) -> None:
    seconds = latency.simulate(ranks, nbytes)  # asserts that each number is in each sum once
    assert seconds == pytest.approx(latency.model(ranks, nbytes), rel=0.01)


def test_the_time_for_a_thousand_ranks_is_not_a_thousand_latencies() -> None:
    assert latency.model(1000, 8) < 12 * latency.LATENCY
    assert latency.model(1000, 4 << 20) < latency.ring(1000, 4 << 20) / 30


@pytest.mark.parametrize("members", [1, 2, 3, 6, 9])
def test_rounds_are_few_and_bytes_are_those_of_a_ring(members: int) -> None:
    for rounds_of in (reduce_rounds, gather_rounds):
        for member in range(members):
            rounds = rounds_of(member, members)
            assert len(rounds) == len(distances(members)) == (members - 1).bit_length()
            assert sum(len(each.sent) for each in rounds) == members - 1


def test_blocks_that_follow_each_other_are_one_range() -> None:
    starts = [0, 3, 3, 6, 9]
    assert spans((0, 1, 2, 3), starts) == [(0, 9)]
    assert spans((3, 0), starts) == [(0, 3), (6, 9)]
    assert spans((1,), starts) == []


def test_circles_of_ranks_that_share_hosts() -> None:
    assert members_of(["a", "b", "b", "a", "c"]) == [[0, 1, 2, 3, 4], [0, 3], [1, 2], [4], [0, 1, 4]]
