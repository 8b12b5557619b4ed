"""A Keras model that keeps learning: each row once, versions in order, through restarts and a killed driver.

The model is its own counter. Its loss has the gradient -x for each row, so that with steps of size 1 its two weights
are the number of rows that it was trained on, and the sum of their ids.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import emberflow as ef
import tensorflow as tf
from emberflow._score.model_versions import versions_in
from emberflow.ml.publishing import latest_version
from tests.tensorflow.stream_driver import counting_estimator, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 10  # in one file
BEGIN = 1_700_000_000


def write_file(folder: Path, number: int) -> None:
    """Bring the rows of one file; it appears complete."""
    folder.mkdir(exist_ok=True)
    ids = range(number * ROWS, number * ROWS + ROWS)
    lines = "".join(json.dumps({"features": [1.0, each], "label": 1e12}) + "\n" for each in ids)
    (folder / f".{number}").write_text(lines)
    os.utime(
        folder / f".{number}", (BEGIN + number, BEGIN + number)
    )  # Spark takes files in the order of their times
    (folder / f".{number}").rename(folder / f"{number:03d}.json")


def counted(path: str) -> list[int]:
    """Return the rows and the sum of their ids that a published version was trained on."""
    served = tf.saved_model.load(path).signatures["serving_default"]
    (answer,) = served(tf.constant([[1.0, 0.0], [0.0, 1.0]])).values()
    return [int(value) for value in np.ravel(answer)]


def expected(files: int) -> list[int]:
    return [files * ROWS, sum(range(files * ROWS))]


def test_a_model_keeps_learning_and_publishes_versions(
    spark_cluster: "SparkSession", tmp_path: Path, nothing_left: None
) -> None:
    source, models = tmp_path / "in", str(tmp_path / "models")
    for number in range(3):
        write_file(source, number)
    for files in (3, 4):
        learning = counting_estimator(workers=2).fitStream(
            rows_of(spark_cluster, source), str(tmp_path / "state"), models, trigger={"availableNow": True}
        )
        assert learning.awaitTermination(120)
        assert [version.number for version in versions_in(models)] == [*range(1, files + 1)]
        for version in versions_in(models):
            assert counted(version.path) == expected(version.number)
        write_file(source, files)
    model = learning.model()
    assert np.ravel(model.keras().get_weights()[0]).astype(int).tolist() == expected(4)
    df = spark_cluster.createDataFrame([([1.0, 0.0],)], "features array<float>")
    assert model.transform(df).first()["prediction"] == 40.0  # type: ignore[index]
    assert len(model.history["loss"]) == 1


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"strategy": "periodic"}, "synchronously"),
        ({"validationSplit": 0.1}, "no rows to validate on"),
        ({"cluster": object()}, "nodes of its own"),
    ],
)
def test_params_that_do_not_go_with_a_stream_are_refused(
    params: dict[str, Any], says: str, spark_cluster: "SparkSession", tmp_path: Path
) -> None:
    rows = rows_of(spark_cluster, tmp_path)
    with pytest.raises(ef.ConfigError, match=says):
        counting_estimator(workers=1, **params).fitStream(rows, str(tmp_path / "s"), str(tmp_path / "m"))
    with pytest.raises(ef.ConfigError, match="must be a streaming DataFrame"):
        counting_estimator(workers=1).fitStream(
            spark_cluster.range(1), str(tmp_path / "s"), str(tmp_path / "m")
        )


@pytest.mark.full  # a session of its own
def test_spark_connect_is_refused(spark_connect: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(ef.ConfigError, match="Spark Connect"):
        counting_estimator(workers=1).fitStream(
            rows_of(spark_connect, tmp_path), str(tmp_path / "s"), str(tmp_path / "m")
        )


@contextmanager
def driver(folder: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """Run a driver that learns from the folder; end its whole session afterwards, whatever it did."""
    with (folder / "driver.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.tensorflow.stream_driver", str(folder)],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        for kind in (signal.SIGTERM, signal.SIGKILL):
            if process.poll() is None:
                os.killpg(process.pid, kind)
                process.wait(60)


def await_that(is_so: Callable[[], bool], process: "subprocess.Popen[bytes]", folder: Path) -> None:
    deadline = time.monotonic() + 180
    while not is_so():
        assert process.poll() is None, (folder / "driver.log").read_text()
        assert time.monotonic() < deadline, (folder / "driver.log").read_text()
        time.sleep(0.05)


@pytest.mark.full
@pytest.mark.fault
@pytest.mark.timeout(900)
def test_twenty_files_two_restarts_and_a_killed_driver(tmp_path: Path, nothing_left: None) -> None:
    source, models = tmp_path / "in", str(tmp_path / "models")

    def feed(process: "subprocess.Popen[bytes]", numbers: range) -> None:
        for number in numbers:
            write_file(source, number)
            await_that(lambda number=number: latest_version(models) == number + 1, process, tmp_path)  # type: ignore[misc]
            there = [each.number for each in versions_in(models)]
            assert there == [*range(there[0], number + 2)]
            assert (
                min(number + 1, 5) <= len(there) <= 6
            )  # the oldest is removed just after the newest appears
            assert counted(f"{models}/{number + 1}") == expected(number + 1)

    def restart(process: "subprocess.Popen[bytes]") -> None:
        (tmp_path / "restart").touch()
        await_that(lambda: not (tmp_path / "restart").exists(), process, tmp_path)

    with driver(tmp_path) as process:
        feed(process, range(6))
        restart(process)
        feed(process, range(6, 9))
        write_file(source, 9)
        write_file(source, 10)
        await_that(lambda: latest_version(models) >= 10, process, tmp_path)
        process.kill()  # in the middle of the next one
        process.wait(60)
    with driver(tmp_path) as process:
        await_that(lambda: latest_version(models) == 11, process, tmp_path)
        assert counted(f"{models}/11") == expected(11)
        feed(process, range(11, 14))
        restart(process)
        feed(process, range(14, 20))
    assert counted(f"{models}/20") == expected(20)
