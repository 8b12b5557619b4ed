"""Runs on an idle cluster: their nodes are forked from a process that has imported TensorFlow."""

import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest

import emberflow as ef

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("nothing_left")


def build() -> Any:
    import keras

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def fit(ctx: Any) -> tuple[bool, list[Any]]:
    is_warm = "tensorflow" in sys.modules
    model = ctx.distribute(build())
    rows = ctx.dataset(features="x", label="y", batch_size=32, seed=3)
    model.fit(rows, epochs=2, verbose=0)
    return is_warm, model.get_weights()


@pytest.mark.smoke
def test_runs_on_an_idle_cluster_start_warm(spark_cluster: "SparkSession") -> None:
    with ef.cluster(workers=2, spark=spark_cluster, verbose=False) as idle:
        for _ in range(2):
            run = ef.run(fit, data=rows_of(spark_cluster), cluster=idle, verbose=False)
            assert run.value[0]
            assert [report.ending for report in run.reports] == ["returned", "returned"]


@pytest.mark.fault
@pytest.mark.full
def test_runs_on_an_idle_cluster_are_as_others_and_leave_it_as_it_was(spark_cluster: "SparkSession") -> None:
    frame = rows_of(spark_cluster)
    cold = ef.run(fit, workers=2, data=frame, spark=spark_cluster, verbose=False)
    with ef.cluster(workers=2, spark=spark_cluster, verbose=False) as idle:
        warm = ef.run(fit, data=frame, cluster=idle, verbose=False)
        check_the_estimator(spark_cluster, idle)
        check_errors_and_losses(idle)
        check_refusals(spark_cluster, idle)
        assert ef.run(lambda ctx: ctx.workers, cluster=idle, verbose=False).value == 2
        assert [node.state for node in idle.status()] == ["up", "up"]
    assert [run.value[0] for run in (cold, warm)] == [False, True]
    for mine, its in zip(warm.value[1], cold.value[1], strict=True):
        np.testing.assert_allclose(mine, its, rtol=0, atol=1e-6)


def rows_of(spark: "SparkSession") -> "DataFrame":
    return spark.range(200).selectExpr("cast(id / 200 as float) x", "cast(id / 100 as float) y")


def check_the_estimator(spark: "SparkSession", idle: "ef.Cluster") -> None:
    frame = spark.range(50).selectExpr("cast(id as float) features", "cast(id as float) label")
    model = ef.KerasEstimator(model=build, cluster=idle, verbose=False).fit(frame)
    assert len(model.result.reports) == 2  # as many workers as the cluster has
    assert "prediction" in model.transform(frame).columns


def check_errors_and_losses(idle: "ef.Cluster") -> None:
    def fail(ctx: Any) -> None:
        raise ValueError(f"nan on {ctx.rank}")

    def die(ctx: Any) -> None:
        if ctx.rank:
            os.kill(os.getpid(), signal.SIGKILL)
        ctx.wait_until_over()

    def leave_a_child(_: Any) -> int:
        return subprocess.Popen(["sleep", "1000"], start_new_session=True).pid

    with pytest.raises(ef.NodeFailedError, match="ValueError: nan on"):
        ef.run(fail, cluster=idle, verbose=False)
    with pytest.raises(ef.NodeLostError, match="killed by SIGKILL"):
        ef.run(die, cluster=idle, verbose=False)
    left = ef.run(leave_a_child, cluster=idle, verbose=False)
    assert not any(psutil.pid_exists(report.value) for report in left.reports)


def check_refusals(spark: "SparkSession", idle: "ef.Cluster") -> None:
    with pytest.raises(ef.ConfigError, match="An idle cluster has workers only"):
        ef.cluster(workers=1, ps=1, spark=spark)
    with pytest.raises(ef.ConfigError, match="an idle cluster, which has none"):
        idle.train(spark.range(3))
    with pytest.raises(ef.ConfigError, match="it was left out"):
        ef.run(fit, spark=spark)
    with (
        ef.cluster(lambda ctx: list(ctx.rounds()), workers=1, spark=spark, verbose=False) as busy,
        pytest.raises(ef.ConfigError, match="`cluster` must be idle"),
    ):
        ef.run(fit, cluster=busy)


def look(ctx: Any) -> dict[str, Any]:
    return {
        "is_warm": "tensorflow" in sys.modules,
        "devices": ctx.devices,
        "seen": os.environ["CUDA_VISIBLE_DEVICES"],
        "has_cuda": "libcuda" in Path("/proc/self/maps").read_text(),
    }


@pytest.mark.fault
@pytest.mark.full  # four starters, each of which imports TensorFlow
def test_runs_on_an_idle_cluster_have_its_gpus(spark_gpus: "SparkSession") -> None:
    options: dict[str, Any] = {"spark": spark_gpus, "transport": "ring", "verbose": False}
    frame = spark_gpus.range(50).selectExpr("cast(id as float) features", "cast(id as float) label")
    with ef.cluster(workers=4, gpus=1, spark=spark_gpus, verbose=False) as idle:
        for _ in range(2):
            check_gpus(ef.run(look, cluster=idle, **options))
        with ThreadPoolExecutor(2) as pool:
            runs = [pool.submit(ef.run, look, workers=2, cluster=idle, **options) for _ in range(2)]
            for run in runs:
                assert all(report.value["is_warm"] for report in run.result().reports)
        model = ef.KerasEstimator(model=build, cluster=idle, transport="ring", verbose=False).fit(frame)
        assert sorted(report.devices for report in model.result.reports) == [("0",), ("1",), ("2",), ("3",)]
        with pytest.raises(ef.ClusterError, match="A GPU belongs to one node at a time"):
            ef.run(look, workers=1, gpus=1, **options)
        with pytest.raises(ef.ConfigError, match=r"gpus=2; the cluster has gpus=1"):
            ef.run(look, gpus=2, cluster=idle, **options)
        assert [node.state for node in idle.status()] == ["up"] * 4
    freed = ef.run(look, workers=4, gpus=1, **options)
    assert sorted(report.devices for report in freed.reports) == [("0",), ("1",), ("2",), ("3",)]


def check_gpus(run: "ef.Result") -> None:
    values = [report.value for report in run.reports]
    assert all(value["is_warm"] for value in values)
    assert not any(value["has_cuda"] for value in values)  # nothing has looked for GPUs before the fork
    assert sorted(value["seen"] for value in values) == ["0", "1", "2", "3"]
    assert all(value["devices"] == (value["seen"],) for value in values)


CUDA = """
#include <stdio.h>
__attribute__((constructor)) static void loaded(void) { printf("loaded\\n"); fflush(stdout); }
int cuInit(unsigned flags) { return 100; }
"""


@pytest.mark.full
@pytest.mark.skipif(shutil.which("gcc") is None, reason="makes a library that stands in for NVIDIA's driver")
def test_what_a_starter_imports_does_not_look_for_gpus(tmp_path: Path) -> None:
    (tmp_path / "cuda.c").write_text(CUDA)
    library = str(tmp_path / "libcuda.so.1")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, str(tmp_path / "cuda.c")], check=True)
    program = """
from emberflow._node.warm_starter import _import
_import()
print("imported", flush=True)
import tensorflow as tf
tf.config.list_physical_devices("GPU")
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": "0"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["imported", "loaded"]
