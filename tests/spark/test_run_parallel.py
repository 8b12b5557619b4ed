"""Many programs at once that know nothing of each other."""

import os
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from emberflow.errors import ClusterError, ConfigError, NodeFailedError, NodeLostError
from emberflow.run_parallel import run_parallel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def look(ctx: Any) -> dict[str, Any]:
    print(f"task {ctx.index} here")
    ctx.report(step=1, square=ctx.index**2)
    (Path(ctx.work_dir) / "mine").touch()
    return {
        "seen": (ctx.index, ctx.rank, ctx.workers, ctx.is_chief, os.environ.get("TF_CONFIG")),
        "pid": os.getpid(),
        "large": b"x" * (100_000 * ctx.index),
    }


@pytest.mark.parametrize("tasks", [1, 5])
def test_each_task_is_alone_with_its_number(
    spark_cluster: "SparkSession", nothing_left: None, tasks: int
) -> None:
    results = run_parallel(look, tasks=tasks, spark=spark_cluster)
    assert [result.value["seen"] for result in results] == [(at, 0, 1, True, None) for at in range(tasks)]
    assert [len(result.value["large"]) for result in results] == [100_000 * at for at in range(tasks)]
    assert len({result.value["pid"] for result in results}) == tasks
    assert [result.metrics[0].values for result in results] == [{"square": at**2} for at in range(tasks)]
    assert all(f"task {at} here" in result.reports[0].log_tail for at, result in enumerate(results))


@pytest.mark.smoke
def test_a_barrier_starts_all_at_once(
    spark_cluster: "SparkSession", nothing_left: None, tmp_path: Path
) -> None:
    def meet(ctx: Any) -> int:
        import time

        (tmp_path / str(ctx.index)).touch()
        deadline = time.monotonic() + 60
        while len(list(tmp_path.iterdir())) < 2:
            assert time.monotonic() < deadline
        return int(ctx.index)

    assert [result.value for result in run_parallel(meet, tasks=2, barrier=True, spark=spark_cluster)] == [
        0,
        1,
    ]


def test_a_barrier_with_too_few_slots_is_refused_within_seconds(
    spark_cluster: "SparkSession", nothing_left: None
) -> None:
    with pytest.raises(
        ClusterError, match=r"(?s)3 tasks need .* 2 slots .* tasks=2 or fewer, or barrier=False"
    ):
        run_parallel(look, tasks=3, barrier=True, spark=spark_cluster)


def fail_some(ctx: Any) -> int:
    if ctx.index == 1:
        raise ValueError("trial 1 diverged")
    return int(ctx.index)


def kill_one(ctx: Any) -> None:
    if ctx.index == 1:
        os.kill(os.getpid(), 9)


def test_a_failure_names_its_cause(spark_cluster: "SparkSession", nothing_left: None) -> None:
    with pytest.raises(NodeFailedError, match="trial 1 diverged") as failed:
        run_parallel(fail_some, tasks=3, spark=spark_cluster)
    assert [result and result.value for result in failed.value.results] == [0, None, 2]
    with pytest.raises(NodeLostError, match="SIGKILL") as lost:
        run_parallel(kill_one, tasks=2, spark=spark_cluster)
    copy = pickle.loads(pickle.dumps(lost.value))
    assert [result is None for result in copy.results] == [False, True]


def test_on_connect(spark_connect: "SparkSession") -> None:
    assert [result.value["seen"][0] for result in run_parallel(look, tasks=3, spark=spark_connect)] == [
        0,
        1,
        2,
    ]


@pytest.mark.full  # a cluster of its own
def test_gpus_are_held_alone(spark_gpus: "SparkSession") -> None:
    def devices(ctx: Any) -> tuple[Any, Any]:
        return ctx.devices, os.environ["CUDA_VISIBLE_DEVICES"]

    results = run_parallel(devices, tasks=6, gpus=1, spark=spark_gpus)
    assert all(
        result.value == (result.reports[0].devices, result.reports[0].devices[0]) for result in results
    )


@pytest.mark.parametrize("wrong", [{"tasks": 0}, {"tasks": 2, "gpus": -1}, {"tasks": True}])
def test_wrong_arguments(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be a whole number"):
        run_parallel(look, **wrong)


def test_a_start_timeout_that_is_no_time_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match="start_timeout"):
        run_parallel(look, tasks=2, start_timeout=-1)
