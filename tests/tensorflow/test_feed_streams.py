"""Rows that are not kept (`cache=False`), on real clusters: uneven streams, and nodes beside those that train."""

from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest

import emberflow as ef
from emberflow.errors import ConfigError, NodeFailedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.usefixtures("nothing_left")

UNDIALLED = "127.0.0.9"  # nobody listens there: the nodes meet by Spark's barrier
BOTH = pytest.mark.parametrize("host", [None, UNDIALLED], ids=["dialled", "undialled"])
DIALLED_FIRST = pytest.mark.parametrize(
    "host", [None, pytest.param(UNDIALLED, marks=pytest.mark.full)], ids=["dialled", "undialled"]
)


def uneven(spark: "SparkSession") -> Any:
    """Return rows that all go to rank 0, more than a window of them, and one to rank 1."""
    many = spark.range(0, 1200, 1, 1200).where("id % 2 = 0")
    return many.union(spark.range(5001, 5003, 1, 1).where("id = 5002"))


def one_pass(ctx: Any) -> list[list[int]]:
    return [batch["id"].numpy().tolist() for batch in ctx.dataset(columns=["id"], batch_size=64)]


def check_uneven(spark: "SparkSession", driver_host: str | None) -> None:
    result = ef.run(
        one_pass,
        workers=2,
        data=uneven(spark),
        cache=False,
        driver_host=driver_host,
        allow_unencrypted=True,
        spark=spark,
        verbose=False,
    )
    parts = [report.value for report in result.reports]
    assert sorted(chain.from_iterable(chain.from_iterable(parts))) == [*range(0, 1200, 2), 5002]
    assert len(parts[0]) == len(parts[1]) >= 600 // 64
    assert [sum(map(len, part)) for part in parts] in ([600, 1], [601, 0])
    assert [report.feed["rows"] for report in result.reports] == [sum(map(len, part)) for part in parts]


@DIALLED_FIRST
def test_a_rank_whose_stream_has_ended_takes_empty_steps(
    spark_cluster: "SparkSession", host: str | None
) -> None:
    check_uneven(spark_cluster, host)


@pytest.mark.full
@BOTH
def test_a_rank_whose_stream_has_ended_takes_empty_steps_on_connect(
    spark_connect: "SparkSession", host: str | None
) -> None:
    check_uneven(spark_connect, host)


@DIALLED_FIRST
def test_an_evaluator_does_not_disturb_a_stream(spark_cluster: "SparkSession", host: str | None) -> None:
    def train(ctx: Any) -> Any:
        if ctx.role == "evaluator":
            return ctx.wait_until_over(60)
        return one_pass(ctx)

    result = ef.run(
        train,
        workers=1,
        evaluator=True,
        data=spark_cluster.range(0, 300, 1, 4),
        cache=False,
        driver_host=host,
        spark=spark_cluster,
        verbose=False,
    )
    assert sorted(chain.from_iterable(result.value)) == list(range(300))
    assert result.reports[1].value is True


@DIALLED_FIRST
def test_a_rank_that_leaves_early_holds_nobody_up(spark_cluster: "SparkSession", host: str | None) -> None:
    def train(ctx: Any) -> int:
        if ctx.rank == 1:
            return len(list(ctx.dataset(columns=["id"], batch_size=64).take(1)))
        return sum(map(len, one_pass(ctx)))

    result = ef.run(
        train,
        workers=2,
        data=spark_cluster.range(0, 4000, 1, 4),
        cache=False,
        driver_host=host,
        spark=spark_cluster,
        verbose=False,
    )
    assert [report.value for report in result.reports] == [2000, 1]


def test_what_a_stream_cannot_do_is_said(spark_cluster: "SparkSession") -> None:
    frame = spark_cluster.range(40)
    with pytest.raises(ConfigError, match="streams one DataFrame"):
        ef.run(one_pass, workers=2, data={"a": frame, "b": frame}, cache=False, spark=spark_cluster)

    def twice(ctx: Any) -> None:
        dataset = ctx.dataset(columns=["id"], batch_size=64)
        list(dataset)
        list(dataset)

    with pytest.raises(NodeFailedError, match="a second pass over 'train'"):
        ef.run(twice, workers=2, data=frame, cache=False, spark=spark_cluster, verbose=False)
