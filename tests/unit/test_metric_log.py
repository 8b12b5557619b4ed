"""Reports in bounded memory: evenly thinned, first and last kept, nothing of another node or name pushed out."""

import itertools
import tracemalloc

from emberflow._task.metric_log import NAME_SETS, MetricLog
from emberflow.result import Metric


def test_few_entries_are_all_kept_in_order_of_arrival() -> None:
    log: MetricLog[str] = MetricLog()
    for number in range(100):
        log.add((number % 3,), ["loss"] if number % 2 else ["accuracy", "loss"], f"{number}")
    assert log.items() == [f"{number}" for number in range(100)]


def test_a_long_series_is_thinned_evenly_and_keeps_its_first_and_last() -> None:
    log: MetricLog[int] = MetricLog(series_limit=100)
    for number in range(12_345):
        log.add((0,), ["loss"], number)
        if number in (99, 100, 101, 5000):
            assert (log.items()[0], log.items()[-1]) == (0, number)
    kept = log.items()
    assert (kept[0], kept[-1]) == (0, 12_344)
    assert 50 <= len(kept) <= 101
    steps = {second - first for first, second in itertools.pairwise(kept[:-1])}
    assert steps == {128}  # 12,345 entries at one in 128: at most 100


def test_rare_reports_of_other_nodes_and_names_stay() -> None:
    log: MetricLog[str] = MetricLog(series_limit=10)
    for number in range(1000):
        log.add((0,), ["loss"], f"step {number}")
        if number % 250 == 0:
            log.add((0,), ["val_loss"], f"epoch {number}")
            log.add((1,), ["loss"], f"other {number}")
    kept = log.items()
    assert [item for item in kept if not item.startswith("step")] == [
        f"{kind} {number}" for number in range(0, 1000, 250) for kind in ("epoch", "other")
    ]


def test_all_series_together_are_bounded_too() -> None:
    log: MetricLog[tuple[int, int]] = MetricLog(series_limit=100, total_limit=200)
    for number in range(1000):
        for rank in range(20):
            log.add((rank,), ["loss"], (rank, number))
    kept = log.items()
    assert len(kept) <= 200 + 20
    for rank in range(20):
        own = [number for each, number in kept if each == rank]
        assert (own[0], own[-1]) == (0, 999)
        assert len(own) > 2


def test_a_name_of_its_own_for_each_step_does_not_grow_without_bound() -> None:
    log: MetricLog[int] = MetricLog(series_limit=10)
    for number in range(5000):
        log.add((0,), [f"loss at {number}"], number)
    kept = log.items()
    assert len(kept) <= NAME_SETS + 11
    assert (kept[0], kept[-1]) == (0, 4999)


def test_an_hour_of_2000_reports_per_second_takes_less_than_2_mb() -> None:
    log: MetricLog[Metric] = MetricLog()
    tracemalloc.start()
    try:
        for number in range(20_000):  # ten seconds of them: nothing grows after the first 2,000
            log.add((0, 0), ["loss"], Metric(rank=0, step=number, values={"loss": 0.5}, seconds=1.0))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(log.items()) <= 2001
    assert held < 2_000_000
