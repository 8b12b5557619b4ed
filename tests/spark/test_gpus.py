"""GPUs by Spark's scheduler, on a cluster that pretends to have some: who holds which, and that all are freed."""

import functools
import os
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from pyspark.errors import PySparkException
from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

import emberflow as ef
from emberflow.errors import ClusterError, ConfigError, EmberflowError, NodeLostError
from tests.sessions import Sessions, classic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = ("0", "1", "2", "3")
SECONDS = 10.0  # a refusal comes before anything starts


# Without TensorFlow in the nodes, which its collectives, the usual transport between GPUs, would bring.
ring = functools.partial(ef.run, transport="ring", verbose=False)


def what_i_see(ctx: Any) -> dict[str, Any]:
    names = ("CUDA_VISIBLE_DEVICES", "TF_FORCE_GPU_ALLOW_GROWTH")
    return {"role": ctx.role, "devices": ctx.devices} | {name: os.environ.get(name) for name in names}


@pytest.mark.smoke
def test_workers_hold_distinct_gpus_and_the_others_none(
    spark_gpus: "SparkSession", nothing_left: None
) -> None:
    result = ring(what_i_see, workers=4, ps=1, evaluator=True, gpus=1, spark=spark_gpus)

    trainers = [report for report in result.reports if report.role in ("chief", "worker")]
    helpers = [report for report in result.reports if report.role in ("ps", "evaluator")]
    assert sorted(device for report in trainers for device in report.devices) == list(ALL)
    for report in trainers:
        assert report.value["devices"] == report.devices
        assert report.value["CUDA_VISIBLE_DEVICES"] == report.devices[0]
        assert report.value["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    assert [report.role for report in helpers] == ["ps", "evaluator"]
    for report in helpers:
        assert report.devices == ()
        assert report.value["CUDA_VISIBLE_DEVICES"] == ""
        assert report.value["TF_FORCE_GPU_ALLOW_GROWTH"] is None


def test_two_gpus_of_one_worker_are_on_its_executor(spark_gpus: "SparkSession", nothing_left: None) -> None:
    result = ring(what_i_see, workers=2, gpus=2, spark=spark_gpus)
    assert sorted(report.devices for report in result.reports) == [("0", "1"), ("2", "3")]
    assert {report.value["CUDA_VISIBLE_DEVICES"] for report in result.reports} == {"0,1", "2,3"}


def die(ctx: Any) -> None:
    if ctx.rank == 1:
        os.kill(os.getpid(), 9)
    ctx.wait_until_over()


@pytest.mark.fault
def test_a_crash_frees_all_gpus(spark_gpus: "SparkSession", nothing_left: None) -> None:
    with pytest.raises(NodeLostError, match="SIGKILL"):
        ring(die, workers=4, ps=1, gpus=1, spark=spark_gpus)
    started = time.monotonic()
    result = ring(what_i_see, workers=4, gpus=1, spark=spark_gpus)
    assert sorted(device for report in result.reports for device in report.devices) == list(ALL)
    assert time.monotonic() - started < SECONDS


@pytest.mark.fault
def test_gpus_of_a_live_cluster_are_refused_to_others_until_it_is_stopped(
    spark_gpus: "SparkSession", nothing_left: None
) -> None:
    def learn(ctx: Any) -> list[int]:
        return [each.rows() for each in ctx.rounds()]

    options: dict[str, Any] = {"gpus": 1, "transport": "ring", "spark": spark_gpus, "verbose": False}
    with ef.cluster(learn, workers=4, **options) as cluster:
        started = time.monotonic()
        with pytest.raises(ClusterError) as caught:
            ef.run(what_i_see, workers=2, **options)
        print(f"a GPU that a live node holds: refused after {time.monotonic() - started:.1f} s")
        assert "A GPU belongs to one node at a time" in str(caught.value)
        assert "cluster.stop()" in caught.value.fix
        holder = psutil.Process(int(caught.value.problem.partition("which process ")[2].split()[0]))
        assert "emberflow._task.attendant" in holder.cmdline()
        with pytest.raises(PySparkException, match="A GPU belongs to one node at a time"):
            scored(spark_gpus, load_pid)
        assert time.monotonic() - started < 3 * SECONDS
        assert cluster.train(spark_gpus.range(10)).rows == 10
        cpus = ring(what_i_see, workers=2, spark=spark_gpus)
        assert [report.devices for report in cpus.reports] == [(), ()]
    result = ef.run(what_i_see, workers=4, **options)
    assert sorted(device for report in result.reports for device in report.devices) == list(ALL)


def test_nodes_without_gpus_see_none_and_hold_none(spark_gpus: "SparkSession", nothing_left: None) -> None:
    # Six nodes: only four would fit if each held the GPU that the session gives to a task by default.
    result = ring(what_i_see, workers=6, spark=spark_gpus)
    assert Counter(report.value["CUDA_VISIBLE_DEVICES"] for report in result.reports) == {"": 6}
    assert all(report.devices == () for report in result.reports)


@pytest.mark.full
def test_auto_takes_every_gpu_and_leaves_slots_for_helpers(
    spark_gpus: "SparkSession", nothing_left: None
) -> None:
    result = ring(what_i_see, workers="auto", ps=1, gpus=1, spark=spark_gpus)
    assert [report.role for report in result.reports] == ["chief", "worker", "worker", "worker", "ps"]
    result = ring(what_i_see, workers="auto", ps=1, evaluator=True, spark=spark_gpus)
    assert Counter(report.role for report in result.reports) == {
        "chief": 1,
        "worker": 3,
        "ps": 1,
        "evaluator": 1,
    }


def load_pid() -> Any:
    return lambda ids: {
        "pid": [os.getpid()] * len(ids),
        "seen": [os.environ["CUDA_VISIBLE_DEVICES"]] * len(ids),
    }


def load_dying() -> Any:
    return lambda _: os.kill(os.getpid(), 9)


def scored(spark: "SparkSession", load: Any, outputs: str = "pid long, seen string") -> list[Any]:
    frame = spark.range(0, 8, 1, 8)
    return ef.predict(frame, load, inputs={"ids": "id"}, outputs=outputs, gpus=1).collect()


@pytest.mark.fault
def test_scoring_gives_its_gpus_back_to_the_next_run(spark_gpus: "SparkSession", nothing_left: None) -> None:
    rows = scored(spark_gpus, load_pid)
    pids = {row["pid"] for row in rows}
    assert len(pids) == len({row["seen"] for row in rows}), "one process per GPU, not one per task"
    assert all(psutil.pid_exists(pid) for pid in pids), "they wait some seconds for the next task"
    started = time.monotonic()
    result = ring(what_i_see, workers=4, gpus=1, spark=spark_gpus)
    assert sorted(report.devices[0] for report in result.reports) == list(ALL)
    ended = [process for process in map(as_process, pids) if process is not None]
    assert ended == [], "every node has waited until its GPU was free"
    assert time.monotonic() - started < SECONDS

    with pytest.raises(PySparkException, match="The model's process exited without reporting a result"):
        scored(spark_gpus, load_dying, "y double")
    assert {row["seen"] for row in scored(spark_gpus, load_pid)} <= set(ALL)
    before = new_profile()
    ring(what_i_see, workers=2, gpus=1, spark=spark_gpus)
    assert new_profile() == before + 1, "no new profile, so no new warning of Spark's about it"


def new_profile() -> int:
    """Make a profile of resources, and return its number: Spark counts them."""
    return ResourceProfileBuilder().require(TaskResourceRequests().cpus(1)).build.id


def as_process(pid: int) -> psutil.Process | None:
    try:
        process = psutil.Process(pid)
        return process if process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None


@pytest.mark.full  # a cluster of its own
def test_gpus_under_another_name(sessions: Sessions, tmp_path: Path) -> None:
    sessions.close()
    script = tmp_path / "find-slices"
    script.write_text('#!/bin/sh\necho \'{"name": "mig", "addresses": ["MIG-a", "MIG-b"]}\'\n')
    script.chmod(0o755)
    settings = {
        "spark.worker.resource.mig.amount": "2",
        "spark.worker.resource.mig.discoveryScript": str(script),
        "spark.executor.resource.mig.amount": "2",
        "spark.task.resource.mig.amount": "1",
    }
    with classic("local-cluster[1,2,1024]", settings) as session:
        with pytest.raises(ClusterError, match=r"no spark\.executor\.resource\.gpu\.amount"):
            ring(what_i_see, workers=1, gpus=1, spark=session)
        result = ring(what_i_see, workers=2, gpus=1, gpu_resource="mig", spark=session)
        assert sorted(report.devices for report in result.reports) == [("MIG-a",), ("MIG-b",)]
        session.conf.set("spark.emberflow.gpuResource", "mig")
        assert {row["seen"] for row in scored(session, load_pid)} == {"MIG-a", "MIG-b"}
        assert ring(what_i_see, workers=1, gpus=2, spark=session).reports[0].devices == ("MIG-a", "MIG-b")


@pytest.mark.fault
@pytest.mark.parametrize(
    ("asked", "error", "says"),
    [
        ({"workers": 2, "gpus": 3}, ClusterError, "Received: gpus=3, but each executor has 2"),
        ({"workers": 5, "gpus": 1}, ClusterError, "room for 4 such nodes"),
        ({"workers": 3, "gpus": 2}, ClusterError, "room for 2 such nodes"),
        ({"workers": 7}, ClusterError, "Received: 6 slots"),
        ({"workers": 4, "ps": 3, "gpus": 1}, ClusterError, "4 workers and 3 ps or evaluator"),
        ({"workers": 2, "gpus": 0.5}, ConfigError, "Received: gpus=0.5"),
        ({"workers": 2, "gpus": "1"}, ConfigError, "Received: gpus='1'"),
        ({"workers": 2, "gpus": True}, ConfigError, "Received: gpus=True"),
        ({"workers": 2, "gpus": -1}, ConfigError, "Received: gpus=-1"),
        ({"workers": 2, "gpus": 1, "gpu_source": "nvml"}, ClusterError, 'gpu_source="nvml"'),
    ],
)
def test_gpus_that_cannot_be_had_are_refused_in_seconds(
    spark_gpus: "SparkSession",
    nothing_left: None,
    asked: dict[str, Any],
    error: type[EmberflowError],
    says: str,
) -> None:
    started = time.monotonic()
    with pytest.raises(error) as caught:
        ring(what_i_see, **asked, spark=spark_gpus)
    assert says in str(caught.value)
    assert "Fix: " in str(caught.value)
    assert time.monotonic() - started < SECONDS


def test_gpus_where_spark_has_none_are_refused(spark_cluster: "SparkSession") -> None:
    with pytest.raises(ClusterError, match=r"Spark manages no GPUs(.|\n)*gpu_source=\"nvml\""):
        ring(what_i_see, workers=2, gpus=1, spark=spark_cluster)
    with pytest.raises(ClusterError, match=r"needs the NVIDIA driver(.|\n)*emberflow\[gpu\]"):
        ring(what_i_see, workers=2, gpus=1, gpu_source="nvml", spark=spark_cluster)
