"""The driver's side of feeding a live cluster: nodes are threads with real sockets, and feeding jobs are loops."""

import threading
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from emberflow._driver.cluster_facts import ClusterFacts
from emberflow._node.live_feeds import LiveFeeds
from emberflow._task import feeding_task
from emberflow._task.feeding_task import RoundTask, StreamTask, bring_partition, bring_shard
from emberflow.errors import ClusterError, ConfigError, DataError, NodeLostError, StartTimeoutError
from tests.spark import fed_cluster
from tests.spark.fed_cluster import FedCluster
from tests.unit.nodes import WITHIN


class Rows:
    """Stands for a DataFrame: the numbers below `rows`, in partitions of ten."""

    names = ("train",)

    def __init__(self, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = rows
        self._patch = monkeypatch

    def feed_round(self, task: RoundTask) -> list[Any]:
        ranks = len(task.access.nodes)
        return [bring_shard(task, rank, batch_of(range(rank, self.rows, ranks))) for rank in range(ranks)]

    def feed_stream(self, task: StreamTask) -> list[Any]:
        found = []
        for number in range(self.rows // 10):
            self._patch.setattr(feeding_task, "task_numbers", lambda number=number: (number, number))
            found.append(bring_partition(task, batch_of(range(10 * number, 10 * number + 10))))
        return [{"error": error} for error in found if error]


def batch_of(rows: range) -> Iterator[Any]:
    return iter([pa.RecordBatch.from_pydict({"id": list(rows)})])


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stands for the session: it knows the tags of jobs."""
    monkeypatch.setattr(fed_cluster, "read_facts", lambda _: ClusterFacts(is_connect=False))
    monkeypatch.setattr("emberflow._driver.live_feeding.read_fed", lambda _spark, data, *_: data)
    monkeypatch.setattr("emberflow._plan.deadlines.FEED_OPEN_TIMEOUT", 0.3)
    context = types.SimpleNamespace(
        addJobTag=lambda _: None, removeJobTag=lambda _: None, cancelJobsWithTag=lambda _: None
    )
    return types.SimpleNamespace(sparkContext=context)


def ids_of_rounds(rank: int, feeds: LiveFeeds) -> list[list[int]]:
    return [[v for batch in each.arrow() for v in batch.column("id").to_pylist()] for each in feeds.rounds()]


def started(spark: Any, fn: Any, folder: Path, **plan: Any) -> FedCluster:
    return FedCluster(spark, fn, folder, plan.pop("workers", 2), 0, **plan)


def test_rounds_and_streams_reach_the_nodes(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ids_of_stream(rank: int, feeds: LiveFeeds) -> list[list[int]]:
        return [batch.column("id").to_pylist() for batch in feeds.stream()]

    for fn in (ids_of_rounds, ids_of_stream):
        cluster = started(spark, fn, tmp_path)
        assert cluster.feeding.train(Rows(100, monkeypatch), epochs=2).rows == 100
        values = cluster.stop()
        assert sorted(v for rank in (0, 1) for ids in values[rank] for v in ids) == sorted([*range(100)] * 2)
        cluster.close()


def test_feeding_a_function_that_has_left_its_rounds_is_an_error(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def once(_rank: int, feeds: LiveFeeds) -> None:
        for _ in feeds.rounds():
            break
        list(feeds.requests())

    cluster = started(spark, once, tmp_path)
    assert cluster.feeding.train(Rows(10, monkeypatch)).rows == 10
    with pytest.raises(ConfigError, match=r"must ask for what it is fed.*it asks for ctx.requests"):
        cluster.feeding.train(Rows(10, monkeypatch))
    cluster.stop()
    cluster.close()


def test_a_function_that_returns_while_it_is_fed_is_an_error(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def early(rank: int, feeds: LiveFeeds) -> None:
        for _ in feeds.rounds():
            if rank == 1:
                return

    cluster = started(spark, early, tmp_path)
    with pytest.raises(ClusterError, match=r"be done with round 0.*it returned on rank 1"):
        cluster.feeding.train(Rows(10, monkeypatch))
    with pytest.raises(ClusterError, match="it has returned on rank 1"):
        cluster.feeding.train(Rows(10, monkeypatch))
    cluster.stop()
    cluster.close()


def test_an_asynchronous_run_goes_on_with_the_workers_that_are_left(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def early(rank: int, feeds: LiveFeeds) -> Any:
        found = []
        for each in feeds.rounds():
            found.append(each.rows())
            if rank == 0:
                return found
        return found

    cluster = started(spark, early, tmp_path, strategy="periodic", workers=3)
    assert cluster.feeding.train(Rows(9, monkeypatch)).rows == 9
    assert cluster.feeding.train(Rows(10, monkeypatch)).rows == 10
    assert cluster.stop() == {0: [3], 1: [3, 5], 2: [3, 5]}
    cluster.close()


class RowsOfALostNode(Rows):
    """A node is lost while it is fed; Spark raises what its task raised, as text."""

    def __init__(self, rows: int, monkeypatch: pytest.MonkeyPatch, cluster: FedCluster, rank: int) -> None:
        super().__init__(rows, monkeypatch)
        self._cluster = cluster
        self._rank = rank

    def feed_round(self, task: RoundTask) -> list[Any]:
        if self._rank in self._cluster.killed:
            return super().feed_round(task)
        self._cluster.kill(self._rank)
        try:
            return super().feed_round(task)
        except NodeLostError as error:
            self._cluster.feeding.node_ended(self._rank)  # the driver notices it just then
            raise RuntimeError(f"Job aborted: emberflow.errors.NodeLostError: {error}\n") from error


def test_a_round_in_which_an_asynchronous_worker_is_lost_is_brought_to_the_others(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = started(spark, ids_of_rounds, tmp_path, strategy="periodic", workers=3)
    assert cluster.feeding.train(RowsOfALostNode(10, monkeypatch, cluster, rank=1)).rows == 10
    values = cluster.stop()
    assert sorted(v for rank in (0, 2) for ids in values[rank] for v in ids) == list(range(10))
    cluster.close()


def test_a_round_in_which_a_worker_of_a_synchronous_training_is_lost_is_an_error(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = started(spark, ids_of_rounds, tmp_path, workers=3)
    with pytest.raises(NodeLostError, match=r"Rank 1 on 127.0.0.1 must take the rows"):
        cluster.feeding.train(RowsOfALostNode(10, monkeypatch, cluster, rank=1))
    cluster.stop()
    cluster.close()


def test_idle_nodes_that_do_not_get_ready_are_named(spark: Any, tmp_path: Path) -> None:
    def idle(rank: int, feeds: LiveFeeds) -> None:
        if rank == 0:
            feeds.announce_warm("emberflow-warm-0")
        feeds.wait_until_over()

    cluster = started(spark, idle, tmp_path, start_timeout=0.3)
    with pytest.raises(StartTimeoutError, match=r"within 0\.3 s.*Received: worker 1 have not"):
        cluster.feeding.warm_access()
    cluster.nodes[1].announce_warm("emberflow-warm-1")
    names = [starter.name for starter in cluster.feeding.warm_access().starters]
    assert names == ["emberflow-warm-0", "emberflow-warm-1"]
    cluster.stop()
    cluster.close()


def test_a_call_that_waits_for_a_busy_function_says_so(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emberflow._plan.deadlines.FEED_NOTICE", 0.05)

    def busy(rank: int, feeds: LiveFeeds) -> list[list[int]]:
        if rank == 1:
            assert told.wait(WITHIN)
        return ids_of_rounds(rank, feeds)

    told = threading.Event()
    monkeypatch.setattr(
        "emberflow._driver.feeding_state.log.warning", lambda *text: (said.append(text), told.set())
    )
    said: list[Any] = []
    cluster = started(spark, busy, tmp_path)
    assert cluster.feeding.train(Rows(10, monkeypatch)).rows == 10
    assert said[0][-1] == "worker 1"
    assert len(said) == 1
    cluster.stop()
    cluster.close()


def test_the_error_of_the_cluster_wakes_calls_that_wait(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(rank: int, feeds: LiveFeeds) -> None:
        for _ in feeds.rounds():
            taken.release()
            assert over.wait(WITHIN)

    taken, over = threading.Semaphore(0), threading.Event()
    cluster = started(spark, busy, tmp_path)
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(cluster.feeding.train, Rows(10, monkeypatch)) for _ in range(2)]
        assert taken.acquire(timeout=WITHIN)
        cluster.feeding.fail(DataError("rank 1 raised", fix="Correct it."))
        for each in waiting:
            with pytest.raises(DataError, match="rank 1 raised"):
                each.result(WITHIN)
    over.set()
    cluster.stop()
    cluster.close()


def test_a_stopped_cluster_finishes_the_round_that_it_has(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, go = threading.Semaphore(0), threading.Event()

    def slow(rank: int, feeds: LiveFeeds) -> int:
        rows = 0
        for each in feeds.rounds():
            taken.release()
            assert go.wait(WITHIN)
            rows += each.rows()
        return rows

    cluster = started(spark, slow, tmp_path)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(cluster.feeding.train, Rows(10, monkeypatch))
        assert taken.acquire(timeout=WITHIN)
        cluster.feeding.stopping()
        with pytest.raises(ClusterError, match="it was stopped"):
            cluster.feeding.train(Rows(10, monkeypatch))
        go.set()
        assert waiting.result(WITHIN).rows == 10
    assert cluster.stop() == {0: 5, 1: 5}
    cluster.close()


def test_a_name_that_nobody_asks_for_is_an_error_with_those_there_are(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = started(spark, lambda _, feeds: list(feeds.stream("words")), tmp_path)
    with pytest.raises(ConfigError, match=r"it asks for ctx.stream\('words'\)") as caught:
        cluster.feeding.train(Rows(10, monkeypatch), name="word")
    assert caught.value.fix == "Did you mean name='words'?"
    cluster.stop()
    cluster.close()
