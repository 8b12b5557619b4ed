"""Nodes that are stopped (SIGSTOP) on a real cluster: connected as before, and silent. No TensorFlow here."""

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import emberflow as ef
from tests.spark.watching import START, await_begun, begin, error_of, kill_node, start_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("nothing_left")

LIMIT = 4.0


def stop_this_process() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.fault
def test_a_stopped_worker_is_missed(spark_cluster: "SparkSession", tmp_path: Path) -> None:
    def train(ctx: Any) -> None:
        begin(tmp_path, ctx.rank)
        if ctx.rank == 1:
            stop_this_process()
        signal.pause()

    run = start_run(spark_cluster, train, exchange_timeout=LIMIT)
    began = await_begun(tmp_path, 1).at
    error = error_of(run, began + LIMIT, f"a stopped worker, after exchange_timeout={LIMIT:g}")
    assert isinstance(error, ef.NodeLostError)
    assert (error.rank, error.role) == (1, "worker")
    assert error.problem.startswith(
        f"Worker 1 on {error.host} was lost: its process has not answered for 4 s"
    )
    assert "raise exchange_timeout" in error.fix


def join(ctx: Any) -> tuple[Any, Any]:
    """Take part in periodic averaging with one number."""
    from emberflow.strategies.periodic.value_layout import VariableSpec

    client = ctx._services.averaging.client()
    specs = [VariableSpec(size=1, dtype="float64", rule="delta")]
    return client, client.open(specs, [np.zeros(1)], "delta")[0]


@pytest.mark.full
@pytest.mark.fault
def test_a_stopped_server_of_periodic_averaging_ends_the_run(
    spark_gpus: "SparkSession", tmp_path: Path
) -> None:
    def train(ctx: Any) -> None:
        client, value = join(ctx)
        begin(tmp_path, ctx.rank)
        while True:
            (value,), _ = client.exchange([value + 1])

    run = start_run(spark_gpus, train, ps=1, strategy="periodic", exchange_timeout=LIMIT)
    begun = [await_begun(tmp_path, rank) for rank in range(2)]
    stopped = time.time()
    kill_node("ps 2", begun[0].node.environ()["EMBERFLOW_RUN"], signal.SIGSTOP)
    error = error_of(run, stopped + LIMIT, f"a stopped periodic server, after exchange_timeout={LIMIT:g}")
    assert isinstance(error, ef.NodeError)
    # Its task and its clients wait equally long: either may be the first to say so, and names it.
    assert error.role == "ps" or "Parameter server 0 did not answer for 4 s" in error.problem
    assert "exchange_timeout" in str(error)


@pytest.mark.full
@pytest.mark.fault
def test_training_goes_on_without_a_worker_that_was_stopped(
    spark_gpus: "SparkSession", tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def train(ctx: Any) -> Any:
        client, value = join(ctx)
        begin(tmp_path, ctx.rank)
        if ctx.rank == 1:
            stop_this_process()
        client.exchange([value + 1])
        if not ctx.is_chief:
            return client.leave()
        (value,), missing = client.finish([value])  # waits for all others
        return float(value[0]), missing

    run = start_run(spark_gpus, train, workers=3, ps=1, strategy="periodic", exchange_timeout=LIMIT)
    began = await_begun(tmp_path, 1).at
    result = run.result(timeout=START)
    print(f"a stopped periodic worker: the run was over {time.time() - began:.2f} s after it")
    assert result.value == (2.0, [1])
    assert [report.ending for report in result.reports] == ["returned", "lost", "returned", "returned"]
    assert "has not answered for 4 s (exchange_timeout)" in caplog.text
    assert "The run goes on without it" in caplog.text
