"""The record of real runs: what happened on the nodes is in it, event by event."""

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import emberflow as ef
from emberflow._plan import deadlines
from emberflow._record.record_files import read_record, records_in
from emberflow._record.run_state import RunState
from emberflow.cli.main import app
from emberflow.errors import NodeFailedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("nothing_left")


def train(ctx: Any) -> int:
    print("hello from", ctx.rank)
    for step in range(5):
        ctx.report(step=step, loss=1.0 / (step + 1))
    end = time.monotonic() + 1.5 * deadlines.USAGE_INTERVAL  # so that its memory is told once
    while time.monotonic() < end:
        ctx.wait_until_over(0.05)
    return int(ctx.rank)


def only_record(folder: Path) -> RunState:
    (path,) = records_in(str(folder))
    return read_record(path)


@pytest.mark.smoke
def test_a_run_leaves_a_record_of_all_that_happened(spark_cluster: "SparkSession", tmp_path: Path) -> None:
    rows = spark_cluster.range(100)
    result = ef.run(
        train, workers=2, data=rows, spark=spark_cluster, verbose=False, record=str(tmp_path / "runs")
    )
    assert result.record == records_in(str(tmp_path / "runs"))[0]
    state = only_record(tmp_path / "runs")
    assert (state.status, state.value) == ("succeeded", "0")
    assert [phase["name"] for phase in state.start.phases] == [
        "planned", "slots", "executors", "nodes", "rows", "first step",
    ]  # fmt: skip
    assert [(node.role, node.state, node.rows) for node in state.nodes.values()] == [
        ("chief", "returned", 50),
        ("worker", "returned", 50),
    ]
    assert all(node.host and node.memory > 1_000_000 for node in state.nodes.values())
    assert [point[4] for point in state.series[0, 0, "loss"].points][-1] == 0.2
    assert [line[2] for line in state.logs[1].lines] == ["hello from 1"]
    assert state.started is not None
    assert state.started.versions["spark"] == spark_cluster.version
    assert state.started.options["workers"] == 2
    listed = CliRunner().invoke(app, ["runs", str(tmp_path / "runs")])
    assert listed.exit_code == 0
    assert "succeeded" in listed.output


def test_a_setting_of_the_session_records_every_run(spark_cluster: "SparkSession", tmp_path: Path) -> None:
    spark_cluster.conf.set("spark.emberflow.record", str(tmp_path))
    try:
        results = ef.run_parallel(lambda ctx: ctx.index**2, tasks=3, spark=spark_cluster)
        with ef.cluster(workers=2, spark=spark_cluster, verbose=False):
            pass
    finally:
        spark_cluster.conf.unset("spark.emberflow.record")
    assert [result.value for result in results] == [0, 1, 4]
    parallel, cluster = (read_record(path) for path in records_in(str(tmp_path)))
    assert parallel.started is not None
    assert parallel.started.kind == "parallel"
    assert [node.state for node in parallel.nodes.values()] == ["returned"] * 3
    assert cluster.started is not None
    assert (cluster.started.kind, cluster.status) == ("cluster", "succeeded")


def test_parallel_tasks_are_in_the_record_while_they_run(
    spark_cluster: "SparkSession", tmp_path: Path
) -> None:
    """Two tasks look at the record of their own call: it must say that both of them run, and what they print."""
    folder = str(tmp_path / "runs")

    def look(ctx: Any) -> list[str]:
        from emberflow._record.record_files import read_record, records_in

        print("hello from task", ctx.index, flush=True)
        ctx.report(step=1, loss=0.5 + ctx.index)
        end = time.monotonic() + 60
        while True:
            state = read_record(records_in(folder)[0])
            if sorted(state.logs) == [0, 1] and len(state.series) == 2:
                return [node.state for node in state.nodes.values()]
            assert time.monotonic() < end, state.changes()
            ctx.wait_until_over(0.1)

    results = ef.run_parallel(look, tasks=2, barrier=True, spark=spark_cluster, record=folder)
    assert [result.value for result in results] == [["running", "running"]] * 2
    state = only_record(tmp_path / "runs")
    assert [node.state for node in state.nodes.values()] == ["returned", "returned"]
    assert [line[2] for line in state.logs[1].lines] == ["hello from task 1"]
    assert [len(series.points) for series in state.series.values()] == [1, 1]


def test_a_killed_worker_and_the_restart_are_in_the_record(
    spark_cluster: "SparkSession", tmp_path: Path
) -> None:
    def killed_once(ctx: Any) -> int:
        ctx.report(step=1, loss=1.0)
        if ctx.rank == 1 and ctx.attempt == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if ctx.attempt == 0:
            ctx.wait_until_over(60)
        return int(ctx.attempt)

    ef.run(killed_once, workers=2, spark=spark_cluster, verbose=False, max_restarts=1, record=str(tmp_path))
    state = only_record(tmp_path)
    assert [mark["kind"] for mark in state.marks] == ["loss", "restart"]
    assert "SIGKILL" in state.marks[0]["text"]
    assert (state.attempt, state.status) == (1, "succeeded")


def test_a_failure_is_in_the_record_with_its_traceback(spark_cluster: "SparkSession", tmp_path: Path) -> None:
    def fail(ctx: Any) -> None:
        raise ValueError("loss is nan")

    with pytest.raises(NodeFailedError):
        ef.run(fail, workers=1, spark=spark_cluster, verbose=False, record=str(tmp_path))
    state = only_record(tmp_path)
    assert state.failure is not None
    assert "ValueError: loss is nan" in state.failure.traceback
    assert state.failure.rank == 0
    assert state.nodes[0].state == "raised"
