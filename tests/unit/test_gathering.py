"""Exchange by Spark's barrier, which knows one exchange only: that of all ranks."""

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from emberflow._feed.shard_facts import ShardFacts, observe
from emberflow._task.exchange import BarrierExchange
from emberflow._task.startup_exchange import MEET, brought_by, meeting_of

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
    """Give the gatherings of all ranks; afterwards none of their threads is left."""
    barrier = Barrier(count)
    watches = [SimpleNamespace(queue=queue.Queue()) for _ in range(count)]
    threads = set(threading.enumerate())
    gatherings = [BarrierExchange(watch, barrier.context(rank), rank) for rank, watch in enumerate(watches)]  # type: ignore[arg-type]
    yield gatherings, [watch.queue for watch in watches]
    for gathering in gatherings:
        gathering.close()
    for thread in set(threading.enumerate()) - threads:
        thread.join(WITHIN)
        assert not thread.is_alive()


def test_all_get_all_values_in_rank_order() -> None:
    with ranks_of(3) as (gatherings, answers):
        for rank, gathering in enumerate(gatherings):
            gathering.start("most-1", {"rank": rank})
        for answer in answers:
            event = answer.get(timeout=WITHIN)
            assert event == {"gathered": "most-1", "values": [{"rank": 0}, {"rank": 1}, {"rank": 2}]}
            assert json.dumps(event)


@pytest.mark.parametrize("has_empty", [False, True])
def test_a_meeting_by_the_barrier_is_that_of_the_driver(has_empty: bool) -> None:
    batch = pa.RecordBatch.from_pydict({"x": [1, 2]})
    facts = ShardFacts(rows=2, digest="d", schema=batch.schema, columns=observe(batch))
    shards = [facts, facts, ShardFacts() if has_empty else facts]
    brought = [brought_by({"tf": f"host-{rank}:1"}, {"train": part}) for rank, part in enumerate(shards)]
    with ranks_of(3) as (gatherings, answers):
        for gathering, mine in zip(gatherings, brought, strict=True):
            gathering.start(MEET, mine)
        for answer in answers:
            assert answer.get(timeout=WITHIN) == {"gathered": MEET, "values": meeting_of(brought)}
        for gathering in gatherings:
            gathering.start("done", None)
        for answer in answers:
            assert answer.get(timeout=WITHIN)["gathered"] == "done"


def test_those_who_are_done_are_not_waited_for() -> None:
    with ranks_of(3) as ((first, second, evaluator), answers):
        evaluator.start("done", None)  # it never trains
        first.start("most-1", 4, of=2)
        second.start("most-1", 7, of=2)
        assert [answer.get(timeout=WITHIN)["values"] for answer in answers[:2]] == [[4, 7]] * 2
        second.start("done", None)
        first.start("most-2", 4, of=2)
        assert answers[0].get(timeout=WITHIN) == {"gathered": "most-2", "values": [4]}
        first.start("done", None)
        for answer in answers:
            assert answer.get(timeout=WITHIN) == {"gathered": "done", "values": [None] * 3}


def test_what_was_asked_before_the_end_is_answered_first() -> None:
    with ranks_of(2) as ((first, second), answers):
        first.start("most-1", 4, of=2)
        first.start("done", None)
        second.start("most-1", 0, of=2)
        second.start("done", None)
        for answer in answers:
            assert answer.get(timeout=WITHIN) == {"gathered": "most-1", "values": [4, 0]}
            assert answer.get(timeout=WITHIN)["gathered"] == "done"


def test_a_broken_barrier_is_told() -> None:
    watch = SimpleNamespace(queue=queue.Queue())

    def broken(text: str) -> list[str]:
        raise RuntimeError("the stage has failed")

    with closing(BarrierExchange(watch, SimpleNamespace(allGather=broken), 0)) as gathering:  # type: ignore[arg-type]
        gathering.start("most-1", 1)
        assert watch.queue.get(timeout=WITHIN) == {"driver_gone": True, "why": "the stage has failed"}
