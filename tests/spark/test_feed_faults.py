"""Rows that cannot be read, on a real cluster: the driver gets what the source raised, and the run is over.

Nothing here is cured by a second attempt, so none is made though `max_restarts` allows one.
"""

import errno
import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import emberflow as ef
from emberflow._feed.file_source import Fragment
from emberflow.errors import DataError, EmberflowError, NodeLostError, StorageError
from tests.spark import watching
from tests.spark.watching import START, await_file, begin, start_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("nothing_left")

GOAL = 30.0  # seconds from the call of `run` to its error, two starts of all nodes being longer on a busy machine
KEPT_FIRST = pytest.mark.parametrize(
    "cache", [True, pytest.param(False, marks=pytest.mark.full)], ids=["kept", "streamed"]
)


def count(ctx: Any) -> int:
    return sum(batch.num_rows for batch in ctx.arrow())


def error_of(
    spark: "SparkSession", data: Any, caplog: pytest.LogCaptureFixture, **options: Any
) -> EmberflowError:
    """Return the error of a run, and see that there was one attempt only."""
    started = time.monotonic()
    with caplog.at_level(logging.WARNING, "emberflow"), pytest.raises(EmberflowError) as caught:
        ef.run(count, workers=2, data=data, max_restarts=1, spark=spark, verbose=False, **options)
    seconds = time.monotonic() - started
    print(
        f"{options}: {type(caught.value).__name__} on the driver {seconds:.1f} s after the start: {caught.value}"
    )
    assert seconds < GOAL
    assert "Starting all nodes again" not in caplog.text
    return caught.value


def corrupt_parquet(folder: Path) -> Path:
    """Write two files whose footers are good; the pages of the second are not."""
    folder.mkdir()
    for name in ("a", "b"):
        pq.write_table(pa.table({"x": range(20_000)}), folder / f"{name}.parquet", row_group_size=2_000)
    damaged = folder / "b.parquet"
    data = bytearray(damaged.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 20_000] = b"\xff" * 20_000
    damaged.write_bytes(data)
    return folder


@pytest.mark.fault
@KEPT_FIRST
def test_a_damaged_parquet_file(
    spark_cluster: "SparkSession", tmp_path: Path, caplog: pytest.LogCaptureFixture, cache: bool
) -> None:
    folder = corrupt_parquet(tmp_path / "rows")
    error = error_of(spark_cluster, ef.Parquet(str(folder)), caplog, cache=cache)
    assert isinstance(error, StorageError)
    assert "Worker 1 on" in str(error)
    assert str(folder / "b.parquet") in str(error)
    assert "OSError: " in str(error)
    assert "damaged" in error.fix


class Unreadable:
    """A source of two files whose second the executors may not read to its end."""

    def fragments(self) -> list[Fragment]:
        return [Fragment(path=name, rows=50_000) for name in ("a", "b")]

    def read(self, fragment: Fragment, start: int, stop: int | None) -> Iterator[Any]:
        for number in range(50):
            if fragment.path == "b" and number == 25:
                raise PermissionError(errno.EACCES, "Permission denied", "/data/b")
            yield pa.RecordBatch.from_pydict({"x": range(1000)})


@pytest.mark.fault
@pytest.mark.parametrize(
    ("cache", "host"),
    [
        pytest.param(True, None, marks=pytest.mark.full),
        (False, None),
        pytest.param(False, "127.0.0.9", marks=pytest.mark.full),
    ],
    ids=["kept", "streamed", "streamed and undialled"],
)
def test_a_file_that_may_not_be_read(
    spark_cluster: "SparkSession",
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
    cache: bool,
    host: str | None,
) -> None:
    if host:
        request.getfixturevalue("session_ends_with_test")
    error = error_of(spark_cluster, Unreadable(), caplog, cache=cache, driver_host=host)
    assert isinstance(error, StorageError)
    assert "Worker 1 on" in str(error)
    assert "PermissionError: [Errno 13] Permission denied: '/data/b'" in str(error)
    assert "chmod" in error.fix


class Hanging:
    """A source that kills the node of rank 1, and then gives nothing for a long time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fragments(self) -> list[Fragment]:
        return [Fragment(path=name, rows=1000) for name in ("a", "b")]

    def read(self, fragment: Fragment, start: int, stop: int | None) -> Iterator[Any]:
        if fragment.path == "b":
            node = await_own_node()
            begin(self.folder, 1)
            node.kill()
            await_file(self.folder / "never")
        yield pa.RecordBatch.from_pydict({"x": range(1000)})


def await_own_node() -> psutil.Process:
    """Return the node of this task, which may still be starting while the task reads its source."""
    deadline = time.monotonic() + START
    pause = threading.Event()
    while True:
        with suppress(psutil.Error):  # a child that has just ended
            children = psutil.Process().children(recursive=True)
            nodes = [each for each in children if each.environ().get("EMBERFLOW_NODE") and is_node(each)]
            if nodes:
                (node,) = nodes
                return node
        assert time.monotonic() < deadline, "the task has no node"
        pause.wait(0.01)


def is_node(process: psutil.Process) -> bool:
    return "emberflow._node.main" in process.cmdline()


@pytest.mark.fault
def test_a_node_that_dies_while_its_source_hangs(spark_cluster: "SparkSession", tmp_path: Path) -> None:
    """Its task waits for rows: the driver hears of the node's end all the same, and Spark ends the task."""
    run = start_run(spark_cluster, count, data=Hanging(tmp_path))
    at = json.loads(await_file(tmp_path / "begun-1").read_text())["at"]
    error = watching.error_of(run, at, "SIGKILL of a node whose source hangs")
    assert isinstance(error, NodeLostError)
    assert error.rank == 1
    assert "SIGKILL" in str(error)


@pytest.mark.fault
@KEPT_FIRST
def test_a_function_of_the_dataframe_that_raises(
    spark_cluster: "SparkSession", caplog: pytest.LogCaptureFixture, cache: bool
) -> None:
    from pyspark.sql import functions as F

    inverse = F.udf(lambda value: 1000 // (value - 77), "long")
    rows = spark_cluster.range(0, 100, 1, 2).select(inverse("id").alias("x"))
    error = error_of(spark_cluster, rows, caplog, cache=cache)
    assert isinstance(error, DataError)
    assert "ZeroDivisionError: integer division or modulo by zero" in str(error)
    assert "in <lambda>" in str(error)
    assert "df.count()" in error.fix
