"""A plan: what a run would start, as the run itself then does, and nothing that starts."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import emberflow as ef

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("nothing_left")


def where(ctx: Any) -> tuple[str, int]:
    return ctx.role, ctx.rows()


def test_a_plan_is_what_the_run_then_does(spark_cluster: "SparkSession") -> None:
    rows = spark_cluster.range(10)
    plan = ef.plan(where, workers=2, data=rows)
    assert (plan.slots, plan.strategy, plan.transport, plan.launch) == (2, "data_parallel", "ring", "barrier")
    assert dict(plan.data) == {"train": "id bigint"}
    result = ef.run(where, workers=2, data=rows, verbose=False)
    assert [(node.rank, node.role) for node in plan.nodes] == [
        (each.rank, each.role) for each in result.reports
    ]
    assert [node.share for node in plan.nodes] == ["1/2", "1/2"]
    assert sum(report.value[1] for report in result.reports) == 10


def test_a_plan_computes_no_rows_and_starts_no_task(spark_cluster: "SparkSession", tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    mark = tmp_path / "computed"

    leave_mark = F.udf(lambda value: mark.touch() or value, "long")
    rows = spark_cluster.range(4).select(leave_mark("id").alias("id"))
    plan = ef.plan(where, workers=1, data={"train": rows, "validation": spark_cluster.range(1)})
    assert list(plan.data) == ["train", "validation"]
    assert plan.nodes[0].share == "all"
    assert not mark.exists()
    rows.collect()
    assert mark.exists()  # so that the mark would have been seen


def test_servers_of_asynchronous_training_take_no_rows(spark_cluster: "SparkSession") -> None:
    plan = ef.plan(where, workers=1, ps=1, strategy="periodic", data=spark_cluster.range(1), max_restarts=1)
    chief, server = plan.nodes
    assert (chief.role, chief.calls_function, chief.share) == ("chief", True, "all")
    assert (server.role, server.calls_function, server.share) == ("ps", False, "")
    assert "restarted up to 1 times" in str(plan)


def test_what_a_run_refuses_its_plan_refuses(spark_cluster: "SparkSession") -> None:
    lock = threading.Lock()
    with pytest.raises(ef.ClusterError, match=r"needs 3 task slots .* Received: 2 slots"):
        ef.plan(where, workers=3, executor_timeout=0.1, spark=spark_cluster)
    with pytest.raises(ef.ShippingError, match="lock"):
        ef.plan(lambda _: lock, workers=1, spark=spark_cluster)
    with pytest.raises(
        ef.UnknownNameError, match=r"plan\(\) got an unexpected keyword argument 'max_restart'"
    ):
        ef.plan(where, workers=1, max_restart=1)
    with pytest.raises(ef.ConfigError, match="it was left out"):
        ef.plan(where, spark=spark_cluster)
