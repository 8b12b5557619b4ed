"""A cluster that stays up: fed again and again, asked, stopped; on executors of one core."""

import time
from typing import TYPE_CHECKING, Any

import pytest

import emberflow as ef

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("nothing_left")


def sums(ctx: Any) -> list[tuple[int, int, int, int]]:
    """Return round, epoch, rows and their sum, of each round that this node saw."""
    seen = []
    for each in ctx.rounds():
        ids = [value for batch in each.arrow() for value in batch.column("id").to_pylist()]
        seen.append((each.number, each.epoch, len(ids), sum(ids)))
    return seen


@pytest.mark.smoke
def test_one_dataframe_after_the_other_each_row_once_per_epoch(spark_cluster: "SparkSession") -> None:
    with ef.cluster(sums, workers=2, spark=spark_cluster, verbose=False) as cluster:
        first = cluster.train(spark_cluster.range(1000).repartition(10), epochs=2)
        assert spark_cluster.range(7).count() == 7  # the slots of two one-core executors are free
        second = cluster.train(spark_cluster.range(3))
        deadline = time.monotonic() + 20.0
        while sum(node.rows_taken for node in cluster.status()) < 2003:  # nodes tell once per second
            assert time.monotonic() < deadline
        assert [node.rows_waiting for node in cluster.status()] == [0, 0]
        assert all(node.rows_per_second > 0 for node in cluster.status())
        states = [(node.rank, node.role, node.state) for node in cluster.status()]
        assert states == [(0, "chief", "up"), (1, "worker", "up")]
        assert "chief 0: up" in repr(cluster)
        assert "rows taken, 0 waiting" in repr(cluster)
        shown = cluster._repr_html_()
        assert "● up" in shown
        assert ">worker 1</td>" in shown
        assert "2 nodes · 2,003 rows taken" in shown
    assert (first.rows, second.rows) == (1000, 3)
    result = cluster.stop()  # again: the same result
    seen = [report.value for report in result.reports]
    assert [[each[:2] for each in node] for node in seen] == [[(0, 0), (0, 1), (1, 0)]] * 2
    for place, (rows, total) in enumerate([(1000, 499_500), (1000, 499_500), (3, 3)]):
        assert sum(node[place][2] for node in seen) == rows
        assert sum(node[place][3] for node in seen) == total
    assert not cluster.is_up
    assert "● stopped" in cluster._repr_html_()
    with pytest.raises(ef.ClusterError, match="must be up"):
        cluster.train(spark_cluster.range(3))


@pytest.mark.full
def test_the_same_on_spark_connect(spark_connect: "SparkSession") -> None:
    with ef.cluster(sums, workers=2, spark=spark_connect, verbose=False) as cluster:
        assert cluster.train(spark_connect.range(1000), epochs=2).rows == 1000
        assert spark_connect.range(7).count() == 7
    seen = [report.value for report in cluster.stop().reports]
    assert [sum(node[epoch][3] for node in seen) for epoch in range(2)] == [499_500, 499_500]


@pytest.mark.full
def test_metrics_and_logs_are_there_while_it_runs(
    spark_cluster: "SparkSession", capsys: pytest.CaptureFixture[str]
) -> None:
    def learn(ctx: Any) -> None:
        for each in ctx.rounds():
            print(f"round {each.number} of {each.rows()} rows")
            ctx.report(step=each.number, loss=0.5)

    with ef.cluster(learn, workers=1, spark=spark_cluster) as cluster:
        cluster.train(spark_cluster.range(5))
        deadline = time.monotonic() + 20.0
        while not cluster.metrics or not cluster.status()[0].log_tail:  # they follow on another connection
            assert time.monotonic() < deadline
        assert [(metric.step, metric.values) for metric in cluster.metrics] == [(0, {"loss": 0.5})]
        assert cluster.status()[0].log_tail[-1] == "round 0 of 5 rows"
    assert "[chief 0] round 0 of 5 rows" in capsys.readouterr().err


def test_a_function_that_returns_while_it_is_fed_is_named(spark_cluster: "SparkSession") -> None:
    def once(ctx: Any) -> None:
        next(ctx.rounds())

    def feed(cluster: ef.Cluster) -> None:
        for _ in range(3):
            cluster.train(spark_cluster.range(3))

    cluster = ef.cluster(once, workers=2, spark=spark_cluster, verbose=False)
    with pytest.raises(ef.ClusterError, match=r"returned|must be up"):
        feed(cluster)
    cluster.stop()


@pytest.mark.fault
def test_an_exception_while_it_is_fed_is_raised_by_the_feeding_call(spark_cluster: "SparkSession") -> None:
    def learn(ctx: Any) -> None:
        for _ in ctx.rounds():
            raise ValueError(f"nan on {ctx.rank}")

    cluster = ef.cluster(learn, workers=2, spark=spark_cluster, verbose=False)
    with pytest.raises(ef.NodeFailedError, match="ValueError: nan on") as caught:
        cluster.train(spark_cluster.range(10))
    assert "in learn" in caught.value.remote_traceback
    with pytest.raises(ef.NodeFailedError, match="ValueError: nan on"):
        cluster.train(spark_cluster.range(10))
    with pytest.raises(ef.NodeFailedError, match="ValueError: nan on"):
        cluster.stop()


@pytest.mark.fault
def test_a_function_that_does_not_return_is_ended_at_the_limit(spark_cluster: "SparkSession") -> None:
    def deaf(ctx: Any) -> None:
        import threading

        list(ctx.rounds())
        threading.Event().wait()

    cluster = ef.cluster(deaf, workers=2, spark=spark_cluster, verbose=False)
    cluster.train(spark_cluster.range(4))
    with pytest.raises(ef.ClusterError, match=r"within 1 s .* chief 0, worker 1"):
        cluster.stop(timeout=1)


@pytest.mark.fault
def test_a_node_that_is_lost_costs_a_restart_and_the_round_is_fed_again(
    spark_cluster: "SparkSession", tmp_path: Any
) -> None:
    def learn(ctx: Any) -> list[int]:
        import os
        import signal

        seen = []
        for each in ctx.rounds():
            if ctx.attempt == 0 and ctx.rank == 1 and each.number == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            seen.append(each.rows())
        return seen

    options: dict[str, Any] = {"workers": 2, "spark": spark_cluster, "verbose": False, "max_restarts": 1}
    with ef.cluster(learn, **options) as cluster:
        assert cluster.train(spark_cluster.range(100)).rows == 100
        assert cluster.train(spark_cluster.range(60)).rows == 60
    result = cluster.stop()
    assert result.attempts == 2
    assert [report.value for report in result.reports] == [[30], [30]]  # of the second attempt
