"""Dynamic allocation on Spark Connect, with GPUs, and where Spark starts copies of tasks on a second host."""

import logging
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import emberflow as ef
from tests.sessions import ALLOCATION, SPECULATION, Sessions, two_hosts
from tests.spark.test_dynamic_allocation import ROWS, ids_of_shard, note_start, starts, sums_of_rounds
from tests.spark.watching import START, await_file, start_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.timeout(400)]


@pytest.mark.full
def test_on_connect_a_run_and_a_live_cluster_start_without_the_barrier_that_spark_refuses(
    spark_connect_allocating: "SparkSession", caplog: pytest.LogCaptureFixture
) -> None:
    rows = spark_connect_allocating.range(0, ROWS, 1, 3)
    with caplog.at_level(logging.DEBUG, logger="emberflow"):
        result = ef.run(ids_of_shard, workers=2, data=rows, spark=spark_connect_allocating, verbose=False)
    assert sorted(value for report in result.reports for value in report.value) == list(range(ROWS))
    assert "waiting for executors: 1 of 2" in caplog.text
    with ef.cluster(sums_of_rounds, workers=1, spark=spark_connect_allocating, verbose=False) as cluster:
        assert cluster.train(rows).rows == ROWS


@pytest.mark.full
@pytest.mark.parametrize("gpus", [1, 2])  # what each task of the session has, and another number
def test_workers_get_executors_with_gpus_and_parameter_servers_others(
    spark_gpus_allocating: "SparkSession", gpus: int
) -> None:
    result = ef.run(
        lambda ctx: (ctx.role, len(ctx.devices)),
        workers=1,
        ps=1,
        gpus=gpus,
        transport="ring",
        spark=spark_gpus_allocating,
        verbose=False,
    )
    assert [report.value for report in result.reports] == [("chief", gpus), ("ps", 0)]


def await_copy(spark: "SparkSession") -> None:
    """Wait until a stage runs more tasks than it has."""
    tracker, pause, deadline = spark.sparkContext.statusTracker(), threading.Event(), time.monotonic() + START
    while True:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        if any(stage and stage.numActiveTasks > stage.numTasks for stage in stages):
            return
        assert time.monotonic() < deadline, f"no copy of a task: {stages}"
        pause.wait(0.1)


@pytest.mark.fault
@pytest.mark.full  # a cluster of its own
def test_a_copy_of_a_slow_task_starts_no_second_node(sessions: Sessions, tmp_path: Path) -> None:
    sessions.close()

    def train(ctx: Any) -> int:
        note_start(tmp_path, ctx)
        await_file(tmp_path / "copied")
        return int(ctx.rank)

    # Nodes end together, so no task is slower than others: Spark copies what takes longer than a second, but only
    # in stages that one executor could hold.
    settings = {
        "spark.speculation.task.duration.threshold": "1s",
        "spark.executor.cores": "2",
        "spark.cores.max": "4",
    }
    with two_hosts(ALLOCATION | SPECULATION | settings) as spark:
        run = start_run(spark, train)
        try:
            await_copy(spark)
        finally:
            (tmp_path / "copied").touch()
        result = run.result(timeout=START)
    assert (result.attempts, [report.value for report in result.reports]) == (1, [0, 1])
    assert starts(tmp_path) == ["0-0", "0-1"]
