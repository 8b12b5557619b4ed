"""Rows of real Spark jobs on the nodes of a live cluster: each once, whatever happens to the tasks."""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import TaskContext
from pyspark.sql import functions as F

from emberflow._node.live_feeds import LiveFeeds
from emberflow.errors import ClusterError, ConfigError, DataError, NodeLostError, RunCancelledError
from tests.sessions import SPECULATION, Sessions, two_hosts
from tests.spark.fed_cluster import fed_cluster
from tests.spark.watching import await_file
from tests.unit.nodes import WITHIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("nothing_left")


def rows_of_rounds(rank: int, feeds: LiveFeeds) -> list[Any]:
    """Return the values of each epoch of each round."""
    return [
        (each.number, each.epoch, [v for batch in each.arrow(name) for v in batch.column("id").to_pylist()])
        for each in feeds.rounds()
        for name in each.names
    ]


def doubled(rank: int, feeds: LiveFeeds) -> int:
    """Reply to all requests; return how many there were."""
    count = 0
    for count, request in enumerate(feeds.requests(), 1):  # noqa: B007
        request.reply({"double": 2 * request.numpy("id")["id"], "rank": [rank] * request.rows})
    return count


def wide(spark: "SparkSession", rows: int = 1000, partitions: int = 10) -> "DataFrame":
    """Rows of 20 kB: the rows of a partition are more than what is on its way at one time."""
    return spark.range(0, rows, 1, partitions).withColumn("bytes", F.expr("repeat(cast(id as string), 6000)"))


@pytest.mark.full
def test_a_round_brings_each_row_once_per_epoch(spark_retrying: "SparkSession") -> None:
    with fed_cluster(spark_retrying, rows_of_rounds) as cluster:
        first = cluster.feeding.train(spark_retrying.range(0, 1000, 1, 10), epochs=2)
        second = cluster.feeding.train(spark_retrying.range(1000, 1003, 1, 1))
        values = cluster.stop()
    assert (first.rows, second.rows) == (1000, 3)
    assert first.seconds > 0
    for epoch in (0, 1):
        seen = Counter(
            v for rank in (0, 1) for number, e, ids in values[rank] if (number, e) == (0, epoch) for v in ids
        )
        assert seen == Counter(range(1000))
    assert sorted(v for rank in (0, 1) for number, _, ids in values[rank] if number == 1 for v in ids) == [
        1000,
        1001,
        1002,
    ]


@pytest.mark.full
def test_named_data_and_a_rank_without_rows(spark_retrying: "SparkSession") -> None:
    def both(rank: int, feeds: LiveFeeds) -> list[Any]:
        return [(each.names, each.rows("train"), each.rows("validation")) for each in feeds.rounds()]

    with fed_cluster(spark_retrying, both) as cluster:
        one = spark_retrying.range(0, 1, 1, 3)
        cluster.feeding.train({"train": spark_retrying.range(100), "validation": one})
        values = cluster.stop()
    names = ("train", "validation")
    assert [values[0][0][0], values[1][0][0]] == [names, names]
    assert values[0][0][1] + values[1][0][1] == 100
    assert sorted([values[0][0][2], values[1][0][2]]) == [0, 1]


@pytest.mark.fault
def test_a_feeding_task_that_is_killed_gives_each_row_once(spark_retrying: "SparkSession") -> None:
    with fed_cluster(spark_retrying, rows_of_rounds, kills=1) as cluster:
        result = cluster.feeding.train(wide(spark_retrying))
        values = cluster.stop()
        assert cluster.kills.left == 0
    assert result.rows == 1000
    assert sorted(v for rank in (0, 1) for _, _, ids in values[rank] for v in ids) == list(range(1000))


def test_no_rows_other_columns_and_unknown_names_are_errors(
    spark_retrying: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emberflow._plan.deadlines.FEED_OPEN_TIMEOUT", 0.5)
    with fed_cluster(spark_retrying, rows_of_rounds) as cluster:
        with pytest.raises(DataError, match="at least one row"):
            cluster.feeding.train(spark_retrying.range(10).where("id > 99"))
        cluster.feeding.train(spark_retrying.range(10))
        with pytest.raises(DataError, match=r"Received: id: int64, more: int32; before: id: int64"):
            cluster.feeding.train(spark_retrying.range(10).withColumn("more", F.lit(1)))
        with pytest.raises(ConfigError, match=r"ctx.requests\('infre'\).*it asks for ctx.rounds\(\)"):
            cluster.feeding.infer(spark_retrying.range(10), name="infre")
        with pytest.raises(ConfigError, match="`epochs`"):
            cluster.feeding.train(spark_retrying.range(10), epochs=0)
        with pytest.raises(DataError, match="could not compute the rows"):
            cluster.feeding.train(spark_retrying.range(10).select(F.raise_error(F.lit("broken")).alias("id")))
        assert cluster.feeding.train(spark_retrying.range(10)).rows == 10
        assert len(cluster.stop()[0]) == 2
        with pytest.raises(ClusterError, match="it was stopped"):
            cluster.feeding.train(spark_retrying.range(10))


@pytest.mark.smoke
def test_inference_is_complete_and_in_place(spark_retrying: "SparkSession") -> None:
    with fed_cluster(spark_retrying, doubled) as cluster:
        frame = spark_retrying.range(0, 1000, 1, 10).where("id < 300 or id > 450")  # empty partitions too
        results = cluster.feeding.infer(frame)
        assert results.columns == ["id", "double", "rank"]
        rows = results.collect()
        assert [row["id"] for row in rows] == [*range(300), *range(451, 1000)]
        assert all(row["double"] == 2 * row["id"] for row in rows)
        assert {row["rank"] for row in rows} == {0, 1}
        declared = cluster.feeding.infer(frame, schema="double double")
        assert declared.agg(F.sum("double")).first()[0] == 2.0 * sum(row["id"] for row in rows)


@pytest.mark.full
@pytest.mark.fault
def test_inference_is_complete_and_in_place_after_a_killed_task(spark_retrying: "SparkSession") -> None:
    with fed_cluster(spark_retrying, doubled, kills=1) as cluster:
        frame = spark_retrying.range(0, 1000, 1, 10)
        rows = cluster.feeding.infer(frame, schema="double long").collect()
        assert cluster.kills.left == 0
    assert [(row["id"], row["double"]) for row in rows] == [(x, 2 * x) for x in range(1000)]


def test_a_reply_of_the_wrong_length_is_an_error_of_the_job(spark_retrying: "SparkSession") -> None:
    def short(rank: int, feeds: LiveFeeds) -> None:
        for request in feeds.requests():
            request.reply([1.0] * (request.rows - 1))

    with fed_cluster(spark_retrying, short) as cluster:
        results = cluster.feeding.infer(spark_retrying.range(0, 10, 1, 1), schema="x double")
        with pytest.raises(
            Exception, match=r"DataError.*9 results for 10 rows(.|\n)*Fix: Reply with results"
        ):
            results.collect()
        with pytest.raises(DataError, match="0 results for 1 rows"):
            cluster.feeding.infer(spark_retrying.range(10))


@pytest.mark.full
def test_several_threads_train_and_infer_at_once(spark_retrying: "SparkSession") -> None:
    def both(rank: int, feeds: LiveFeeds) -> list[Any]:
        with ThreadPoolExecutor(1) as pool:
            served = pool.submit(doubled, rank, feeds)
            rounds = rows_of_rounds(rank, feeds)
            served.result(WITHIN)
        return rounds

    with fed_cluster(spark_retrying, both) as cluster, ThreadPoolExecutor(4) as pool:
        trained = [
            pool.submit(cluster.feeding.train, spark_retrying.range(start, start + 100, 1, 4))
            for start in (0, 100)
        ]
        asked = [
            pool.submit(lambda: cluster.feeding.infer(spark_retrying.range(0, 200, 1, 6)).collect())
            for _ in range(2)
        ]
        assert [each.result(WITHIN * 3).rows for each in trained] == [100, 100]
        for each in asked:
            assert [row["double"] for row in each.result(WITHIN * 3)] == [2 * x for x in range(200)]
        values = cluster.stop()
    assert sorted(v for rank in (0, 1) for _, _, ids in values[rank] for v in ids) == list(range(200))
    assert [number for number, _, _ in values[0]] == [0, 1]


@pytest.mark.fault
def test_cancelled_jobs_give_nothing_and_the_nodes_live(spark_retrying: "SparkSession") -> None:
    context = spark_retrying.sparkContext

    def slow(batches: Any) -> Any:
        for batch in batches:
            time.sleep(WITHIN)
            yield batch

    with fed_cluster(spark_retrying, rows_of_rounds) as cluster, ThreadPoolExecutor(1) as pool:
        trained = pool.submit(
            cluster.feeding.train, spark_retrying.range(0, 100, 1, 4).mapInArrow(slow, "id long")
        )
        pause = threading.Event()
        while not context.statusTracker().getActiveStageIds():
            pause.wait(0.05)
        context.cancelAllJobs()
        with pytest.raises(RunCancelledError, match="the nodes run on"):
            trained.result(WITHIN)
        assert cluster.feeding.train(spark_retrying.range(10)).rows == 10
        values = cluster.stop()
    assert sorted(v for rank in (0, 1) for _, _, ids in values[rank] for v in ids) == list(range(10))


@pytest.mark.fault
def test_the_error_of_the_cluster_comes_before_that_of_the_job(spark_retrying: "SparkSession") -> None:
    lost = NodeLostError("Rank 1 was killed.", fix="Look at its log.", rank=1)

    with fed_cluster(spark_retrying, rows_of_rounds) as cluster, ThreadPoolExecutor(1) as pool:
        cluster.feeding.train(spark_retrying.range(10))
        cluster.kill(1)
        trained = pool.submit(cluster.feeding.train, spark_retrying.range(10))
        pause = threading.Event()
        while not (cluster.feeding._jobs._running or trained.done()):
            pause.wait(0.01)
        cluster.feeding.fail(lost)
        with pytest.raises(NodeLostError, match="Rank 1 was killed"):
            trained.result(WITHIN)
        with pytest.raises(NodeLostError, match="Rank 1 was killed"):
            cluster.feeding.infer(spark_retrying.range(10))


@pytest.mark.fault
def test_a_dead_node_is_named_at_once(
    spark_retrying: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emberflow._plan.deadlines.FEED_FAILURE_SETTLE", 0.1)
    with fed_cluster(spark_retrying, rows_of_rounds) as cluster:
        cluster.feeding.train(spark_retrying.range(10))
        cluster.kill(1)
        with pytest.raises(NodeLostError, match=r"Rank 1 on 127.0.0.1 must take the rows"):
            cluster.feeding.train(spark_retrying.range(10))


def rows_of_stream(rank: int, feeds: LiveFeeds) -> list[int]:
    return [value for batch in feeds.stream() for value in batch.column("id").to_pylist()]


@pytest.mark.smoke
def test_a_stream_brings_each_row_once_per_epoch(spark_retrying: "SparkSession") -> None:
    with fed_cluster(spark_retrying, rows_of_stream) as cluster:
        result = cluster.feeding.train(spark_retrying.range(0, 1000, 1, 10).where("id < 900"), epochs=2)
        with pytest.raises(DataError, match="at least one row"):
            cluster.feeding.train(spark_retrying.range(10).where("id > 99"))
        values = cluster.stop()
    assert result.rows == 900
    assert Counter(values[0] + values[1]) == Counter([*range(900), *range(900)])
    assert values[0]
    assert values[1]


@pytest.mark.full
@pytest.mark.fault
def test_a_feeding_task_of_a_stream_that_is_killed_gives_each_row_once(
    spark_retrying: "SparkSession",
) -> None:
    with fed_cluster(spark_retrying, rows_of_stream, kills=1) as cluster:
        result = cluster.feeding.train(wide(spark_retrying))
        values = cluster.stop()
        assert cluster.kills.left == 0
    assert result.rows == 1000
    assert sorted(values[0] + values[1]) == list(range(1000))


def test_a_function_that_has_enough_ends_the_feeding_job(spark_retrying: "SparkSession") -> None:
    def some(rank: int, feeds: LiveFeeds) -> list[int]:
        stream, taken = feeds.stream(), []
        while len(taken) < 20 and (batch := stream.next(10)) is not None:
            taken += batch.column("id").to_pylist()
        feeds.stop_feeding()
        return taken + [value for batch in stream for value in batch.column("id").to_pylist()]

    def endless(batches: Any) -> Any:
        for batch in batches:
            if batch.column(0)[0].as_py() >= 500:
                time.sleep(WITHIN * 10)
            yield batch

    frame = spark_retrying.range(0, 1000, 1, 50).mapInArrow(endless, "id long")
    with fed_cluster(spark_retrying, some) as cluster:
        result = cluster.feeding.train(frame, epochs=5)
        assert 20 <= result.rows <= 500
        values = cluster.stop()
    assert len(values[0] + values[1]) >= 20


def values_of_rounds(rank: int, feeds: LiveFeeds) -> list[Any]:
    return [
        (name, row)
        for each in feeds.rounds()
        for name in each.names
        for batch in each.arrow(name)
        for row in batch.to_pylist()
    ]


@pytest.mark.smoke
def test_rdds_are_fed_in_rounds(spark_retrying: "SparkSession") -> None:
    context = spark_retrying.sparkContext
    pairs = context.parallelize([(x, [x / 2, 1.0]) for x in range(1000)], 10)
    with fed_cluster(spark_retrying, values_of_rounds) as cluster:
        assert cluster.feeding.train(pairs).rows == 1000
        words = context.parallelize(["a", "b", "c"], 2)
        assert cluster.feeding.train({"train": pairs, "words": words}).rows == 1003
        with pytest.raises(DataError, match="All rows must have 2 values"):
            cluster.feeding.train(context.parallelize([(1, [2.0], "more")], 1))
        with pytest.raises(DataError, match=r"could not compute the rows(.|\n)*ZeroDivisionError"):
            cluster.feeding.train(pairs.map(lambda row: (row[0] // 0, row[1])))
        with pytest.raises(ConfigError, match="with DataFrames, or with RDDs"):
            cluster.feeding.train({"train": pairs, "other": spark_retrying.range(3)})
        values = cluster.stop()
    seen = values[0] + values[1]
    assert Counter(row["_1"] for name, row in seen if name == "train") == Counter([*range(1000)] * 2)
    assert all(row["_2"] == [row["_1"] / 2, 1.0] for name, row in seen if name == "train")
    assert sorted(row["value"] for name, row in seen if name == "words") == ["a", "b", "c"]
    assert abs(len(values[0]) - len(values[1])) < 100


@pytest.mark.full
def test_rdds_are_fed_into_streams(spark_retrying: "SparkSession") -> None:
    from pyspark.sql import Row

    rows = spark_retrying.sparkContext.parallelize(range(1000), 10).map(lambda x: Row(id=x, name=str(x)))
    with fed_cluster(spark_retrying, rows_of_stream, kills=1) as cluster:
        assert cluster.feeding.train(rows, epochs=2).rows == 1000
        values = cluster.stop()
    assert Counter(values[0] + values[1]) == Counter([*range(1000)] * 2)


def values_of_stream(rank: int, feeds: LiveFeeds) -> list[int]:
    return [value for batch in feeds.stream() for value in batch.column("value").to_pylist()]


@pytest.mark.full
def test_an_rdd_whose_schema_is_known_is_computed_once(spark_retrying: "SparkSession") -> None:
    import pyarrow as pa

    computed = spark_retrying.sparkContext.accumulator(0)

    def value(x: int) -> int:
        computed.add(1)
        return x

    numbers = spark_retrying.sparkContext.parallelize(range(1000), 10).map(value)
    with fed_cluster(spark_retrying, values_of_stream) as cluster:
        assert cluster.feeding.train(numbers, schema=pa.schema([("value", pa.int64())])).rows == 1000
        for wrong, data in (("value long", numbers), (pa.schema([]), spark_retrying.range(3))):
            with pytest.raises(ConfigError, match=r"must be a pyarrow\.Schema, and `data` one RDD"):
                cluster.feeding.train(data, schema=wrong)
        values = cluster.stop()
    assert Counter(values[0] + values[1]) == Counter(range(1000))
    assert computed.value == 1000


@pytest.mark.full
def test_rdds_are_inferred_in_place(spark_retrying: "SparkSession") -> None:
    def answer(rank: int, feeds: LiveFeeds) -> None:
        for request in feeds.requests():
            values = request.numpy("_2")["_2"].sum(axis=1)
            request.reply({"sum": values, "rank": [rank] * request.rows} if values[0] < 0 else values)

    pairs = [(str(x), [float(x), 1.0]) for x in range(500)]
    with fed_cluster(spark_retrying, answer) as cluster:
        results = cluster.feeding.infer(spark_retrying.sparkContext.parallelize(pairs, 7))
        assert results.collect() == [x + 1.0 for x in range(500)]
        several = cluster.feeding.infer(
            spark_retrying.sparkContext.parallelize([("a", [-5.0, 1.0])], 1)
        ).collect()
        assert [row["sum"] for row in several] == [-4.0]


@pytest.mark.full  # one of each again, in another setting
@pytest.mark.parametrize("encrypt", [False, True], ids=["plain", "encrypted"])
def test_feeding_on_spark_connect(spark_connect: "SparkSession", *, encrypt: bool) -> None:
    def all_of_them(rank: int, feeds: LiveFeeds) -> list[int]:
        with ThreadPoolExecutor(2) as pool:
            served = [pool.submit(doubled, rank, feeds), pool.submit(rows_of_stream, rank, feeds)]
            rounds = [v for _, _, ids in rows_of_rounds(rank, feeds) for v in ids]
            return rounds + list(served[1].result(WITHIN))

    with fed_cluster(spark_connect, all_of_them, encrypt=encrypt) as cluster:
        assert cluster.feeding.train({"other": spark_connect.range(0, 100, 1, 4)}).rows == 100
        assert cluster.feeding.train(spark_connect.range(100, 200, 1, 4)).rows == 100
        rows = cluster.feeding.infer(spark_connect.range(0, 100, 1, 4)).collect()
        assert [row["double"] for row in rows] == [2 * x for x in range(100)]
        values = cluster.stop()
    assert sorted(values[0] + values[1]) == list(range(200))


def slow_once(copied: Path) -> Any:
    """Return a function whose second task waits until Spark has started a copy of it."""

    def same(batches: Any) -> Any:
        task = TaskContext.get()
        assert task is not None
        for batch in batches:
            yield batch
            if task.partitionId() == 1 and task.attemptNumber() == 0:
                await_file(copied)  # its rows are with the node, and their end is not
        if task.attemptNumber() > 0:
            copied.touch()

    return same


@pytest.mark.full  # a cluster of its own
def test_speculative_copies_of_feeding_tasks_give_each_row_once(sessions: Sessions, tmp_path: Path) -> None:
    sessions.close()
    with two_hosts(SPECULATION | {"spark.task.maxFailures": "4"}) as spark:
        for fn in (rows_of_stream, rows_of_rounds):
            slow = slow_once(tmp_path / fn.__name__)
            frame = wide(spark, 100, 4).mapInArrow(slow, "id long, bytes string")
            with fed_cluster(spark, fn) as cluster:
                assert cluster.feeding.train(frame).rows == 100
                values = cluster.stop()
            seen = values[0] + values[1]
            if fn is rows_of_rounds:
                seen = [v for _, _, ids in seen for v in ids]
            assert sorted(seen) == list(range(100))
