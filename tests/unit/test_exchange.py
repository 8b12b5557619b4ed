"""Exchange by Spark's barrier, which knows one exchange only: that of all ranks."""

import queue
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from emberflow._feed.shard_facts import ShardFacts, observe
from emberflow._protocol.driver_messages import Gathered
from emberflow._protocol.messages import encode
from emberflow._task.events import DriverGone
from emberflow._task.exchange import BarrierExchange
from emberflow._task.startup_exchange import cluster_of, startup_facts

WITHIN = 10.0


class Barrier:
    """A stand-in for `BarrierTaskContext` of some ranks: each round waits for all of them."""

    def __init__(self, ranks: int) -> None:
        self._texts = [""] * ranks
        self._barrier = threading.Barrier(ranks, timeout=WITHIN)

    def context(self, rank: int) -> Any:
        def all_gather(text: str) -> list[str]:
            self._texts[rank] = text
            self._barrier.wait()
            texts = list(self._texts)
            self._barrier.wait()
            return texts

        return SimpleNamespace(allGather=all_gather)


@contextmanager
def ranks_of(count: int) -> "Iterator[tuple[list[BarrierExchange], list[queue.Queue[Any]]]]":
    """Give the exchanges of all ranks; afterwards none of their threads is left."""
    barrier = Barrier(count)
    monitors = [SimpleNamespace(events=queue.Queue()) for _ in range(count)]
    threads = set(threading.enumerate())
    exchanges = [
        BarrierExchange(monitor, barrier.context(rank).allGather, rank)
        for rank, monitor in enumerate(monitors)
    ]  # type: ignore[arg-type]
    yield exchanges, [monitor.events for monitor in monitors]
    for exchange in exchanges:
        exchange.close()
    for thread in set(threading.enumerate()) - threads:
        thread.join(WITHIN)
        assert not thread.is_alive()


def test_all_get_all_values_in_rank_order() -> None:
    with ranks_of(3) as (exchanges, answers):
        for rank, exchange in enumerate(exchanges):
            exchange.start("steps-1", {"rank": rank})
        for answer in answers:
            event = answer.get(timeout=WITHIN)
            assert event == Gathered("steps-1", [{"rank": 0}, {"rank": 1}, {"rank": 2}])
            assert encode(event)


@pytest.mark.parametrize("has_empty", [False, True])
def test_a_rendezvous_by_the_barrier_is_that_of_the_driver(has_empty: bool) -> None:
    batch = pa.RecordBatch.from_pydict({"x": [1, 2]})
    facts = ShardFacts(rows=2, digest="d", schema=batch.schema, columns=observe(batch))
    shards = [facts, facts, ShardFacts() if has_empty else facts]
    brought = [startup_facts({"tf": f"host-{rank}:1"}, {"train": part}) for rank, part in enumerate(shards)]
    with ranks_of(3) as (exchanges, answers):
        for exchange, mine in zip(exchanges, brought, strict=True):
            exchange.start_up(mine)
        for answer in answers:
            assert answer.get(timeout=WITHIN) == cluster_of(brought)
        for exchange in exchanges:
            exchange.start("done", None)
        for answer in answers:
            assert answer.get(timeout=WITHIN).tag == "done"


def test_those_who_are_done_are_not_waited_for() -> None:
    with ranks_of(3) as ((first, second, evaluator), answers):
        evaluator.start("done", None)  # it never trains
        first.start("steps-1", 4, of=2)
        second.start("steps-1", 7, of=2)
        assert [answer.get(timeout=WITHIN).values for answer in answers[:2]] == [[4, 7]] * 2
        second.start("done", None)
        first.start("steps-2", 4, of=2)
        assert answers[0].get(timeout=WITHIN) == Gathered("steps-2", [4])
        first.start("done", None)
        for answer in answers:
            assert answer.get(timeout=WITHIN) == Gathered("done", [None] * 3)


def test_what_was_asked_before_the_end_is_answered_first() -> None:
    with ranks_of(2) as ((first, second), answers):
        first.start("steps-1", 4, of=2)
        first.start("done", None)
        second.start("steps-1", 0, of=2)
        second.start("done", None)
        for answer in answers:
            assert answer.get(timeout=WITHIN) == Gathered("steps-1", [4, 0])
            assert answer.get(timeout=WITHIN).tag == "done"


def test_a_broken_barrier_is_told() -> None:
    monitor = SimpleNamespace(events=queue.Queue())

    def broken(text: str) -> list[str]:
        raise RuntimeError("the stage has failed")

    with closing(BarrierExchange(monitor, broken, 0)) as exchange:
        exchange.start("steps-1", 1)
        assert monitor.events.get(timeout=WITHIN) == DriverGone("the stage has failed")
