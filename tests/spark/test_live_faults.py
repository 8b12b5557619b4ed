"""Faults of a live cluster: what the feeding call and `stop` say, what the cluster survives, and nothing left."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import emberflow as ef
from emberflow._feed.batch_connection import BatchConnection
from emberflow.local.cluster import local_cluster
from tests.sessions import submit_arguments
from tests.spark.fed_cluster import pid_of_peer
from tests.spark.lonely_driver import HangsWhenLoaded, hanging_in_round
from tests.spark.watching import (
    START,
    BegunLive,
    await_begun_live,
    await_file,
    await_gone,
    await_noted,
    begin,
    driver,
    error_of,
    start_call,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("nothing_left")


def started(
    spark: "SparkSession", fn: Callable[[Any], Any], folder: Path, **options: Any
) -> tuple[ef.Cluster, list[BegunLive]]:
    """Start two nodes; return the cluster and its processes."""
    cluster = ef.cluster(fn, **{"workers": 2, "spark": spark, "verbose": False} | options)
    return cluster, [await_begun_live(folder, rank) for rank in range(2)]


CAUSES = {
    "node": "killed by SIGKILL",
    "keeper": "had to be ended",
    "attendant": "attendant",
    "executor": "its executor has ended",
}


@pytest.mark.fault
@pytest.mark.parametrize(
    "victim",
    [
        pytest.param("node", marks=pytest.mark.full),
        pytest.param("keeper", marks=pytest.mark.full),
        "attendant",
        pytest.param("executor", marks=pytest.mark.full),
    ],
)
def test_a_process_that_is_killed_while_it_is_fed(
    spark_cluster: "SparkSession", tmp_path: Path, victim: str
) -> None:
    cluster, begun = started(spark_cluster, hanging_in_round(tmp_path, 1), tmp_path)
    assert cluster.train(spark_cluster.range(10)).rows == 10
    call = start_call(lambda: cluster.train(spark_cluster.range(10)))
    for rank in range(2):
        await_file(tmp_path / f"hangs-{rank}")
    target: psutil.Process = getattr(begun[1], victim)
    killed = time.time()
    target.send_signal(signal.SIGKILL)
    error = error_of(call, killed, f"SIGKILL of the {victim} of a live node")
    print(error)
    assert isinstance(error, ef.NodeLostError)
    assert error.rank == 1
    assert CAUSES[victim] in str(error)
    with pytest.raises(ef.NodeLostError, match=CAUSES[victim]):
        cluster.stop()
    for each in begun:
        await_gone(each.node)


@pytest.mark.fault
@pytest.mark.full
def test_jobs_that_are_cancelled_and_a_python_worker_that_is_killed_do_not_end_the_cluster(
    spark_cluster: "SparkSession", tmp_path: Path
) -> None:
    def learn(ctx: Any) -> list[int]:
        begin(tmp_path, ctx.rank)
        return [each.rows() for each in ctx.rounds()]

    cluster, begun = started(spark_cluster, learn, tmp_path)
    context = spark_cluster.sparkContext
    context.cancelAllJobs()
    assert cluster.train(spark_cluster.range(10)).rows == 10
    for each in begun:
        each.python_worker.kill()  # as Spark does to one that was idle for a minute
    assert cluster.train(spark_cluster.range(20)).rows == 20

    def wait(batches: Any) -> Any:
        (tmp_path / "feeds").touch()
        await_file(tmp_path / "never")
        yield from batches

    call = start_call(lambda: cluster.train(spark_cluster.range(30).mapInArrow(wait, "id long")))
    await_file(tmp_path / "feeds")
    cancelled = time.time()
    context.cancelAllJobs()
    error = error_of(call, cancelled, "cancel of the job that feeds a live cluster")
    assert isinstance(error, ef.RunCancelledError)
    assert "the nodes run on" in str(error)
    assert cluster.train(spark_cluster.range(40)).rows == 40
    reports = cluster.stop().reports
    assert [sum(rows) for rows in zip(*(report.value for report in reports), strict=True)] == [10, 20, 40]


@pytest.mark.full
def test_two_clusters_and_a_run_share_executors_of_one_core(
    spark_cluster: "SparkSession", tmp_path: Path
) -> None:
    def learn(ctx: Any) -> list[int]:
        return [each.rows() for each in ctx.rounds()]

    options: dict[str, Any] = {"workers": 2, "spark": spark_cluster, "verbose": False}
    with ef.cluster(learn, **options) as first, ef.cluster(learn, **options) as second:
        assert first.train(spark_cluster.range(10)).rows == 10
        assert second.train(spark_cluster.range(20)).rows == 20
        result = ef.run(lambda ctx: ctx.rank, **options)
        assert [report.value for report in result.reports] == [0, 1]
        assert first.train(spark_cluster.range(30)).rows == 30
    assert sum(report.value[1] for report in first.stop().reports) == 30
    assert sum(report.value[0] for report in second.stop().reports) == 20


@pytest.mark.fault
@pytest.mark.full
def test_a_start_whose_task_is_killed_leaves_nothing(spark_cluster: "SparkSession", tmp_path: Path) -> None:
    call = start_call(
        lambda: ef.cluster(HangsWhenLoaded(tmp_path), workers=2, spark=spark_cluster, verbose=False)
    )
    begun = [await_begun_live(tmp_path, rank) for rank in range(2)]
    chains = [each.chain for each in begun]
    killed = time.time()
    begun[1].python_worker.kill()
    error = error_of(call, killed, "SIGKILL of a Python worker while a live cluster starts")
    assert isinstance(error, ef.NodeLostError)
    assert error.rank == 1
    for gone in [each for chain in chains for each in chain]:
        await_gone(gone)


class FailsWhenLoaded:
    """Cannot be unpickled on the second node."""

    def __reduce__(self) -> Any:
        return fail_on_second, ()

    def __call__(self, ctx: Any) -> None: ...


def fail_on_second() -> FailsWhenLoaded:
    if os.environ.get("EMBERFLOW_NODE", "").endswith(" 1"):
        raise ImportError("no module for this")
    return FailsWhenLoaded()


@pytest.mark.fault
@pytest.mark.full
def test_a_start_that_fails_on_one_node_ends_the_others(spark_cluster: "SparkSession") -> None:
    began = time.time()
    call = start_call(lambda: ef.cluster(FailsWhenLoaded(), workers=2, spark=spark_cluster, verbose=False))
    error = error_of(call, began, "a live cluster whose function cannot be loaded on one node")
    assert "no module for this" in str(error)


@pytest.mark.fault
@pytest.mark.full
def test_a_lost_executor_costs_a_restart_and_the_call_is_fed_again(
    spark_cluster: "SparkSession", tmp_path: Path
) -> None:
    def learn(ctx: Any) -> list[int]:
        rows = []
        if ctx.attempt == 0:
            begin(tmp_path, ctx.rank)
        for each in ctx.rounds():
            rows.append(each.rows())
            if ctx.attempt == 0:
                (tmp_path / f"hangs-{ctx.rank}").touch()
                signal.pause()
        return rows

    cluster, begun = started(spark_cluster, learn, tmp_path, max_restarts=1)
    call = start_call(lambda: cluster.train(spark_cluster.range(10)))
    for rank in range(2):
        await_file(tmp_path / f"hangs-{rank}")
    killed = time.time()
    begun[1].executor.kill()
    assert call.result(START).rows == 10
    print(f"SIGKILL of an executor, max_restarts=1: fed again after {time.time() - killed:.2f} s")
    result = cluster.stop()
    assert result.attempts == 2
    assert sum(sum(report.value) for report in result.reports) == 10


@pytest.mark.fault
@pytest.mark.full
def test_a_cluster_that_is_stopped_while_its_nodes_start_again_ends(
    spark_cluster: "SparkSession", tmp_path: Path
) -> None:
    def learn(ctx: Any) -> int:
        if ctx.attempt == 0:
            begin(tmp_path, ctx.rank)
        return sum(each.rows() for each in ctx.rounds())

    cluster, begun = started(spark_cluster, learn, tmp_path, max_restarts=1)
    begun[1].node.kill()
    await_gone(begun[0].node)  # the first attempt is over
    result = cluster.stop()
    assert result.attempts == 2
    assert [report.value for report in result.reports] == [0, 0]


CLUSTER = "local-cluster[2,1,1024]"


@pytest.mark.fault
@pytest.mark.full
@pytest.mark.parametrize("victim", ["python", "jvm"])
def test_a_killed_driver_takes_its_live_nodes_along(tmp_path: Path, victim: str) -> None:
    with driver(tmp_path, CLUSTER, "feed") as process:
        chains = [await_begun_live(tmp_path, rank).chain for rank in range(2)]
        for rank in range(2):
            await_file(tmp_path / f"hangs-{rank}")
        jvm = [child for child in psutil.Process(process.pid).children() if child.name() == "java"]
        killed = time.time()
        process.kill() if victim == "python" else jvm[0].kill()
        for gone in [each for chain in chains for each in chain]:
            await_gone(gone)
        print(
            f"SIGKILL of the driver's {victim}: nothing left of the nodes after {time.time() - killed:.2f} s"
        )
        if victim == "jvm":
            raised = await_noted(tmp_path / "raised")
            print(f"raised by the call after {raised.at - killed:.2f} s: {raised.kind}: {raised.text}")
            assert raised.kind == "ClusterError"
            assert "session lost its JVM on the driver" in raised.text
            assert await_noted(tmp_path / "stopped").text == raised.text


@pytest.mark.fault
@pytest.mark.full
@pytest.mark.parametrize("master", [CLUSTER, "local[2]"])
def test_a_session_that_is_stopped_ends_its_live_nodes(tmp_path: Path, master: str) -> None:
    with driver(tmp_path, master, "feed_and_stop_session") as process:
        chains = [await_begun_live(tmp_path, rank).chain for rank in range(2)]
        stopped = float(await_file(tmp_path / "at").read_text())
        for gone in [each for chain in chains for each in chain]:
            await_gone(gone)
        print(f"spark.stop() on {master}: nothing left of the nodes after {time.time() - stopped:.2f} s")
        raised = await_noted(tmp_path / "raised")
        print(f"raised by the call after {raised.at - stopped:.2f} s: {raised.kind}: {raised.text}")
        assert raised.kind == "ClusterError"
        assert "session was stopped" in raised.text
        assert "cluster.stop()" in raised.text
        assert await_noted(tmp_path / "stopped").text == raised.text
        assert process.wait(START) == 0


@pytest.mark.fault
@pytest.mark.full
@pytest.mark.parametrize("scene", ["feed", "start"])
def test_control_c_ends_the_live_nodes(tmp_path: Path, scene: str) -> None:
    with driver(tmp_path, CLUSTER, scene) as process:
        chains = [await_begun_live(tmp_path, rank).chain for rank in range(2)]
        if scene == "feed":
            for rank in range(2):
                await_file(tmp_path / f"hangs-{rank}")
        pressed = time.time()
        os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to the whole foreground group
        raised = await_noted(tmp_path / "raised")
        print(f"Ctrl-C in {scene}: raised after {raised.at - pressed:.2f} s")
        assert raised.kind == "KeyboardInterrupt"
        for node, *_ in chains:
            await_gone(node, timeout=0.0)  # before the call, or the block of the cluster, came to its end
        for gone in [each for chain in chains for each in chain]:
            await_gone(gone)


@pytest.mark.fault
@pytest.mark.full
@pytest.mark.parametrize("seconds", [5, 60])
def test_a_driver_that_is_stopped_for_a_while_loses_nothing(tmp_path: Path, seconds: int) -> None:
    # Not local-cluster: its Master is in the driver's JVM, and removes Workers that it has not heard for 60 s.
    with (
        local_cluster(workers=2, cores=1) as cluster,
        submit_arguments(f"--properties-file {cluster.properties_file}"),
        driver(tmp_path, cluster.url, "feed_slowly") as process,
    ):
        await_file(tmp_path / "feeds")
        jvm = [child for child in psutil.Process(process.pid).children() if child.name() == "java"]
        stopped = [psutil.Process(process.pid), *jvm]
        assert len(stopped) == 2
        for each in stopped:
            each.suspend()
        (tmp_path / "go-on").touch()
        time.sleep(seconds)
        for each in stopped:
            each.resume()
        assert json.loads(await_file(tmp_path / "seen").read_text()) == [10, 100, 1000]
        assert process.wait(START) == 0


@pytest.mark.fault
@pytest.mark.full
@pytest.mark.usefixtures("session_ends_with_test")
def test_a_killed_worker_of_a_standalone_cluster_takes_its_node_along(
    spark_standalone: "SparkSession", tmp_path: Path
) -> None:
    cluster, begun = started(spark_standalone, hanging_in_round(tmp_path, 0), tmp_path)
    call = start_call(lambda: cluster.train(spark_standalone.range(10)))
    for rank in range(2):
        await_file(tmp_path / f"hangs-{rank}")
    chains = [each.chain for each in begun]
    killed = time.time()
    begun[1].worker.kill()
    error = error_of(call, killed, "SIGKILL of the Worker of a live node")
    assert isinstance(error, ef.NodeLostError)
    assert error.rank == 1
    assert "its executor has ended" in str(error)
    with pytest.raises(ef.NodeLostError, match="its executor has ended"):
        cluster.stop()
    for gone in [each for chain in chains for each in chain]:
        await_gone(gone)


def kill_one_feeding_task(folder: Path) -> None:
    """Have this node kill the Python worker of the first task that brings rows, in the middle of them."""
    receive = BatchConnection.receive_stream

    def killing(self: BatchConnection) -> Iterator[Any]:
        for batch in receive(self):
            yield batch
            with suppress(FileExistsError):
                (folder / "killed").touch(exist_ok=False)
                os.kill(pid_of_peer(self._sock), signal.SIGKILL)

    BatchConnection.receive_stream = killing  # type: ignore[method-assign]


@pytest.mark.fault
@pytest.mark.full
@pytest.mark.parametrize("way", ["rounds", "stream", "requests"])
def test_a_feeding_task_that_is_killed_is_repeated_and_each_row_comes_once(
    spark_retrying: "SparkSession", tmp_path: Path, way: str
) -> None:
    def learn(ctx: Any) -> list[int]:
        kill_one_feeding_task(tmp_path)
        batches: list[Any] = []
        if way == "rounds":
            batches = [batch for each in ctx.rounds() for batch in each.arrow()]
        elif way == "stream":
            batches = list(ctx.stream())
        else:
            for request in ctx.requests():
                request.reply(2 * request.numpy("id")["id"])
        return [value for batch in batches for value in batch.column("id").to_pylist()]

    rows = spark_retrying.range(0, 1000, 1, 10)
    with ef.cluster(learn, workers=2, spark=spark_retrying, verbose=False) as cluster:
        if way == "requests":
            inferred = cluster.infer(rows, schema="prediction long").collect()
            assert [tuple(row) for row in inferred] == [(number, 2 * number) for number in range(1000)]
        else:
            assert cluster.train(rows).rows == 1000
    assert (tmp_path / "killed").exists()
    if way != "requests":
        seen = [value for report in cluster.stop().reports for value in report.value]
        assert sorted(seen) == list(range(1000))


@pytest.mark.fault
@pytest.mark.full
def test_asynchronous_training_goes_on_without_lost_workers(
    spark_gpus: "SparkSession", tmp_path: Path
) -> None:
    def die(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def learn(ctx: Any) -> list[int]:
        if ctx.rank == 2:
            BatchConnection.receive_stream = die  # type: ignore[assignment]  # while it is fed
        rows = []
        for each in ctx.rounds():
            if ctx.rank == 1 and len(rows) == 1:
                die()  # while it trains
            rows.append(each.rows())
        return rows

    options: dict[str, Any] = {"workers": 3, "ps": 1, "strategy": "periodic", "spark": spark_gpus}
    with ef.cluster(learn, verbose=False, **options) as cluster:
        for rows in (100, 200, 300):
            began = time.time()
            assert cluster.train(spark_gpus.range(rows)).rows == rows
            print(f"{rows} rows, trained on after {time.time() - began:.2f} s")
    endings = {report.rank: report.ending for report in cluster.stop().reports}
    assert endings == {0: "returned", 1: "lost", 2: "lost", 3: "returned"}
    assert cluster.stop().value == [50, 100, 300]
