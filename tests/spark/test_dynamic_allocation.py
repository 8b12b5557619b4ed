"""Dynamic allocation: nodes start without a barrier, on executors that come when needed and go afterwards."""

import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import emberflow as ef
from tests.spark.keras_models import flower_model, flower_rows
from tests.spark.watching import START, await_begun, await_begun_live, begin, error_of, start_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.timeout(400)]

WITHIN = 60.0
ROWS = 1000


def executors(spark: "SparkSession") -> int:
    """Count the executors; the driver counts itself too."""
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1


def await_executors(spark: "SparkSession", count: int) -> None:
    """Wait until Spark has so many executors."""
    pause, deadline = threading.Event(), time.monotonic() + WITHIN
    while executors(spark) != count:
        assert time.monotonic() < deadline, f"{executors(spark)} executors, not {count}"
        pause.wait(0.1)


def note_start(folder: Path, ctx: Any) -> None:
    """Leave a file of this node's process: two processes of a rank would leave two."""
    (folder / f"start-{ctx.attempt}-{ctx.rank}-{os.getpid()}").touch()


def starts(folder: Path) -> list[str]:
    """Return attempt and rank of each process that was started."""
    return sorted(path.name.rpartition("-")[0].removeprefix("start-") for path in folder.glob("start-*"))


def test_nodes_start_from_no_executor_at_all_and_executors_go_afterwards(
    spark_allocating: "SparkSession", caplog: pytest.LogCaptureFixture
) -> None:
    await_executors(spark_allocating, 0)
    with caplog.at_level(logging.DEBUG, logger="emberflow"):
        result = ef.run(lambda ctx: ctx.rank, workers=2, spark=spark_allocating, verbose=False)
    assert [report.value for report in result.reports] == [0, 1]
    assert "launch='independent'" in caplog.text
    for count in range(2):
        assert f"waiting for executors: {count} of 2" in caplog.text
    await_executors(spark_allocating, 0)


@pytest.mark.fault
def test_more_nodes_than_may_ever_have_executors_are_refused_at_once(
    spark_allocating: "SparkSession",
) -> None:
    with pytest.raises(ef.ClusterError, match=r"at most 3 slots .*maxExecutors=3"):
        ef.run(lambda _: 0, workers=4, spark=spark_allocating)
    with pytest.raises(ef.ClusterError, match="one more for the jobs that feed them"):
        ef.cluster(lambda _: 0, workers=3, spark=spark_allocating)


def ids_of_shard(ctx: Any) -> list[int]:
    return [int(value) for batch in ctx.dataset(columns=["id"], batch_size=64) for value in batch["id"]]


@pytest.mark.full
def test_every_row_comes_once_and_adaptive_execution_merges_no_ranks(
    spark_allocating: "SparkSession",
) -> None:
    assert spark_allocating.conf.get("spark.sql.adaptive.enabled") == "true"
    rows = spark_allocating.range(0, ROWS, 1, 5)
    result = ef.run(ids_of_shard, workers=3, data=rows, spark=spark_allocating, verbose=False)
    shards = [report.value for report in result.reports]
    assert all(shards)
    assert sorted(value for shard in shards for value in shard) == list(range(ROWS))


@pytest.mark.full
def test_a_fit_is_that_of_one_worker(spark_allocating: "SparkSession") -> None:
    import numpy as np

    rows = flower_rows(spark_allocating)

    def weights(workers: int, batch: int) -> Any:
        estimator = ef.KerasEstimator(
            model=flower_model,
            featuresCols=["length", "width"],
            labelCol="label",
            batchSize=batch,
            epochs=5,
            numWorkers=workers,
            verbose=False,
        )
        model = estimator.fit(rows)
        assert model.transform(rows).filter("prediction is not null").count() == rows.count()
        return model.keras().get_weights()

    for one, two in zip(weights(1, 96), weights(2, 48), strict=True):  # a step is the whole of the rows
        np.testing.assert_allclose(two, one, rtol=1e-5, atol=1e-6)


@pytest.mark.fault
@pytest.mark.full
def test_an_exception_is_on_the_driver_in_seconds_and_spark_repeats_nothing(
    spark_allocating: "SparkSession", tmp_path: Path
) -> None:
    def train(ctx: Any) -> None:
        note_start(tmp_path, ctx)
        begin(tmp_path, ctx.rank)
        if ctx.rank == 1:
            raise ValueError("nan loss")
        signal.pause()

    run = start_run(spark_allocating, train)
    error = error_of(run, await_begun(tmp_path, 1).at, "exception under dynamic allocation")
    assert isinstance(error, ef.NodeFailedError)
    assert "in train" in error.remote_traceback
    assert starts(tmp_path) == ["0-0", "0-1"]


@pytest.mark.fault
@pytest.mark.parametrize(
    "victim",
    [
        pytest.param("node", marks=pytest.mark.full),
        pytest.param("python_worker", marks=pytest.mark.full),
        "executor",
    ],
)
def test_a_task_that_spark_starts_again_starts_no_second_node(
    spark_allocating: "SparkSession", tmp_path: Path, victim: str
) -> None:
    def train(ctx: Any) -> int:
        note_start(tmp_path, ctx)
        if ctx.attempt == 0:
            begin(tmp_path, ctx.rank)
            signal.pause()
        return int(ctx.attempt)

    run = start_run(spark_allocating, train, max_restarts=1)
    await_begun(tmp_path, 0)
    target: psutil.Process = getattr(await_begun(tmp_path, 1), victim)
    target.send_signal(signal.SIGKILL)
    result = run.result(timeout=START)
    assert (result.attempts, [report.value for report in result.reports]) == (2, [1, 1])
    assert starts(tmp_path) == ["0-0", "0-1", "1-0", "1-1"]


@pytest.mark.fault
@pytest.mark.full
@pytest.mark.parametrize("victim", ["node", "python_worker", "executor"])
def test_a_killed_process_is_an_error_in_seconds(
    spark_allocating: "SparkSession", tmp_path: Path, victim: str
) -> None:
    def train(ctx: Any) -> None:
        begin(tmp_path, ctx.rank)
        signal.pause()

    run = start_run(spark_allocating, train)
    await_begun(tmp_path, 0)
    target: psutil.Process = getattr(await_begun(tmp_path, 1), victim)
    killed = time.time()
    target.send_signal(signal.SIGKILL)
    error = error_of(run, killed, f"SIGKILL of the {victim} under dynamic allocation")
    assert isinstance(error, ef.NodeLostError)
    assert error.rank == 1


@pytest.mark.fault
@pytest.mark.full
def test_nodes_for_which_no_executor_comes_in_time_end_all_together(
    spark_allocating: "SparkSession", tmp_path: Path
) -> None:
    def occupy(batches: Any) -> Any:
        begin(tmp_path, 0)
        threading.Event().wait(60)
        yield from batches

    frame = spark_allocating.range(0, 2, 1, 2).mapInArrow(occupy, "id long")
    spark_allocating.sparkContext.addJobTag("occupying")
    other = threading.Thread(target=lambda: suppress_all(frame.collect), daemon=True)
    other.start()
    try:
        await_begun(tmp_path, 0)
        await_executors(spark_allocating, 2)
        with pytest.raises(ef.StartTimeoutError, match=r"executors came for [01] of 2 nodes, and not for"):
            ef.run(lambda _: 0, workers=2, start_timeout=30, spark=spark_allocating, verbose=False)
    finally:
        spark_allocating.sparkContext.cancelAllJobs()
        spark_allocating.sparkContext.removeJobTag("occupying")
        other.join(WITHIN)


def suppress_all(call: Any) -> None:
    """Call what ends with an error of Spark's: it is cancelled."""
    try:
        call()
    except Exception as error:  # noqa: BLE001
        print(f"as wanted: {str(error)[:60]}")


def sums_of_rounds(ctx: Any) -> list[int]:
    return [
        sum(int(value) for batch in each.dataset(columns=["id"], batch_size=64) for value in batch["id"])
        for each in ctx.rounds()
    ]


@pytest.mark.full
def test_a_live_cluster_keeps_its_executors_while_it_is_idle_and_lets_them_go(
    spark_allocating: "SparkSession",
) -> None:
    with ef.cluster(sums_of_rounds, workers=2, spark=spark_allocating, verbose=False) as cluster:
        assert cluster.train(spark_allocating.range(ROWS)).rows == ROWS
        await_executors(spark_allocating, 2)  # the one for feeding was idle, and those of the nodes stay
        assert cluster.train(spark_allocating.range(ROWS)).rows == ROWS
        result = cluster.stop()
    rounds = [report.value for report in result.reports]
    assert [sum(each) for each in zip(*rounds, strict=True)] == [sum(range(ROWS))] * 2
    await_executors(spark_allocating, 0)


@pytest.mark.fault
@pytest.mark.full
def test_a_live_cluster_whose_executor_is_killed_starts_again(
    spark_allocating: "SparkSession", tmp_path: Path
) -> None:
    def serve(ctx: Any) -> list[int]:
        note_start(tmp_path, ctx)
        begin(tmp_path, ctx.rank)
        return sums_of_rounds(ctx)

    with ef.cluster(serve, workers=2, max_restarts=1, spark=spark_allocating, verbose=False) as cluster:
        await_begun_live(tmp_path, 1).executor.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + START
        while len(starts(tmp_path)) < 4:
            assert time.monotonic() < deadline
            threading.Event().wait(0.1)
        assert cluster.train(spark_allocating.range(ROWS)).rows == ROWS
    assert starts(tmp_path) == ["0-0", "0-1", "1-0", "1-1"]


@pytest.mark.full
def test_independent_tasks_and_scoring_run_as_ever(spark_allocating: "SparkSession") -> None:
    results = ef.run_parallel(lambda ctx: ctx.index**2, tasks=4, spark=spark_allocating)
    assert [result.value for result in results] == [0, 1, 4, 9]
    rows = spark_allocating.range(0, 100, 1, 4)
    scored = ef.predict(rows, load_double, inputs="id", outputs="double long")
    assert sorted(map(tuple, scored.collect())) == [(number, 2 * number) for number in range(100)]


def load_double() -> Any:
    return lambda ids: {"double": 2 * ids}


@pytest.mark.full
def test_an_idle_cluster_and_the_runs_on_it_hold_slots_of_their_own(spark_allocating: "SparkSession") -> None:
    with ef.cluster(workers=1, spark=spark_allocating, verbose=False) as idle:
        assert ef.run(is_warm, cluster=idle, verbose=False).value  # another executor, of the same host
        with pytest.raises(ef.ClusterError, match="Received: 1 of 3 slots held"):
            ef.run(is_warm, workers=3, spark=spark_allocating, verbose=False)
    await_executors(spark_allocating, 0)


def is_warm(_: Any) -> bool:
    return "tensorflow" in sys.modules
