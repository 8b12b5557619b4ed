"""Large values on real clusters: out with the function, back with the chief's value, and lost on the way."""

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import emberflow as ef
from emberflow._driver import value_server as values_module
from emberflow._driver.shipping import INLINE_LIMIT
from emberflow.run_parallel import run_parallel
from tests.spark.watching import START, start_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

# `full`: they need a cluster of their own, and test_run_connect.py shows a value above the limit in each run.
pytestmark = [pytest.mark.full, pytest.mark.usefixtures("nothing_left"), pytest.mark.timeout(400)]

MB = 1 << 20
UNDIALLED = "127.0.0.9"


def returning(megabytes: int) -> "Callable[[Any], bytes]":
    """Return a function whose value is much larger than what Spark brings back."""
    return lambda _: bytes(range(256)) * (megabytes * 4096)


@pytest.mark.fault
def test_a_function_and_a_value_above_sparks_limit_go_both_ways(spark_limited: "SparkSession") -> None:
    data = os.urandom(INLINE_LIMIT + MB)

    def echo(ctx: Any) -> Any:
        return (ctx.rank, data)

    result = ef.run(echo, workers=2, spark=spark_limited, verbose=False)
    assert result.value == (0, data)
    assert result.reports[1].value is None  # only the chief's comes back if it is large


@pytest.mark.fault
def test_where_the_driver_cannot_be_dialled_spark_and_the_shared_folder_take_over(
    spark_limited: "SparkSession", tmp_path: Path
) -> None:
    data = os.urandom(INLINE_LIMIT + MB)
    options: dict[str, Any] = {
        "workers": 2,
        "spark": spark_limited,
        "verbose": False,
        "driver_host": UNDIALLED,
    }
    result = ef.run(lambda _: data, checkpoint_dir=str(tmp_path), **options)
    assert result.value == data
    assert not list(tmp_path.glob(".value-*"))
    with pytest.raises(ef.ClusterError, match=r"9\.0 MB are too large: it cannot reach the driver") as caught:
        ef.run(lambda _: data, **options)
    assert "Chief 0 on" in str(caught.value)
    assert "checkpoint_dir" in caught.value.fix


def test_values_of_parallel_tasks_above_sparks_limit_all_come_back(spark_limited: "SparkSession") -> None:
    results = run_parallel(lambda ctx: bytes([ctx.index]) * (2 * MB), tasks=3, spark=spark_limited)
    assert [result.value for result in results] == [bytes([index]) * (2 * MB) for index in range(3)]


def wide_model() -> Any:
    """Build a model of 2 MB, of which a trained one has 6 with its optimizer's variables."""
    import keras

    layers = [keras.layers.Input((2,)), keras.layers.Dense(170_000, "relu"), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile(loss="mse", optimizer="adam")
    return model


def wide_estimator() -> ef.KerasEstimator:
    return ef.KerasEstimator(
        model=wide_model(), featuresCol="x", labelCol="y", batchSize=8, numWorkers=2, verbose=False
    )


def wide_rows(spark: "SparkSession") -> "DataFrame":
    return spark.range(16).selectExpr("array(id, 1 - id) AS x", "cast(id AS float) AS y")


def test_an_estimators_model_above_sparks_limit_comes_back(spark_limited: "SparkSession") -> None:
    model = wide_estimator().fit(wide_rows(spark_limited))
    assert model.result.reports[0].ending == "returned"
    assert len(model.trained.keras_file) > 4 * MB
    assert len(model.history["loss"]) == 1


class Hold:
    """A spool on the driver that calls back once, when the first bytes of a value have come."""

    def __init__(self, call: "Callable[[], None]") -> None:
        self._call = call
        self._file = values_module.tempfile.TemporaryFile()

    def write(self, data: Any) -> int:
        call, self._call = self._call, lambda: None
        call()
        return self._file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def returning_after_note(notes: Path) -> "Callable[[Any], bytes]":
    def work(ctx: Any) -> bytes:
        if ctx.is_chief:  # when its value travels the node is gone
            worker = psutil.Process().parents()[1]
            notes.joinpath("worker").write_text(str(worker.pid))
        return bytes(64 * MB) if ctx.attempt == 0 else b"second attempt"

    return work


def worker_in(notes: Path) -> int:
    """Return the process of the chief's Spark task."""
    return int(notes.joinpath("worker").read_text())


@pytest.mark.fault
@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("full", ef.StorageError, "No space left on device"),
        ("stopped", ef.NodeLostError, "bytes received, and nothing for 4 s"),
        ("killed", ef.NodeLostError, "its Spark task exited without reporting a result"),
    ],
)
def test_a_value_that_is_lost_on_the_way_is_an_error_with_rank_and_cause(
    spark_limited: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    kind: type[ef.EmberflowError],
    words: str,
) -> None:
    struck: list[float] = []

    def strike() -> None:
        struck.append(time.time())
        if fault == "full":
            raise OSError(28, "No space left on device")
        os.kill(worker_in(tmp_path), signal.SIGSTOP if fault == "stopped" else signal.SIGKILL)

    monkeypatch.setattr(values_module, "spool", lambda: Hold(strike))
    run = start_run(spark_limited, returning_after_note(tmp_path), exchange_timeout=4.0)
    error = run.exception(timeout=START)
    print(f"value {fault}: on the driver after {time.time() - struck[0]:.2f} s: {error}")
    assert isinstance(error, kind)
    assert words in str(error)
    assert "Chief 0 on 127.0.0.1" in str(error)


@pytest.mark.fault
def test_a_restart_after_a_lost_value_starts_clean(
    spark_limited: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def strike() -> None:
        os.kill(worker_in(tmp_path), signal.SIGKILL)

    monkeypatch.setattr(values_module, "spool", lambda: Hold(strike))
    result = ef.run(
        returning_after_note(tmp_path), workers=2, spark=spark_limited, verbose=False, max_restarts=1
    )
    assert (result.value, result.attempts) == (b"second attempt", 2)


@pytest.mark.fault
@pytest.mark.usefixtures("session_ends_with_test")
def test_an_estimators_model_that_cannot_come_back_is_refused_before_training(
    spark_limited: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    from emberflow.ml import estimator as estimator_module

    def undialled(*args: Any, **options: Any) -> ef.Result:
        return ef.run(*args, **options | {"driver_host": UNDIALLED})

    monkeypatch.setattr(estimator_module, "run", undialled)
    with pytest.raises(
        ef.ClusterError, match=r"could not run: the model that it returns will have 2\.\d MB or more"
    ):
        wide_estimator().fit(wide_rows(spark_limited))


def test_1500_mb_go_out_and_come_back_with_sparks_default_limit(spark_cluster: "SparkSession") -> None:
    import numpy as np

    data = np.arange(1500 * MB // 8)
    started = time.monotonic()

    def echo(ctx: Any) -> Any:
        data[0] = ctx.workers
        return data

    result = ef.run(echo, workers=2, spark=spark_cluster, verbose=False)
    print(f"1.5 GB out to two nodes and back: {time.monotonic() - started:.1f} s")
    data[0] = 2
    assert np.array_equal(result.value, data)
