"""Streams whose ranks wait for each other: whoever holds the others up is named in time, a slow source is not."""

import logging
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from emberflow._feed.file_source import Fragment
from emberflow.errors import NodeLostError, PeerError
from tests.spark.watching import START, await_begun, await_file, begin, error_of, start_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.usefixtures("nothing_left")

LIMIT = 3.0


def training(folder: Path, fault: str) -> Any:
    """Return a program whose rank 1 holds the others up in the middle of its stream."""

    def train(ctx: Any) -> None:
        for number, _ in enumerate(ctx.dataset(columns=["id"], batch_size=64)):
            if number == 10 and ctx.rank == 1:
                begin(folder, 1)
                if fault == "stopped node":
                    os.kill(os.getpid(), signal.SIGSTOP)
                signal.pause()

    return train


@pytest.mark.fault
@pytest.mark.parametrize(
    "fault",
    [
        "stopped node",
        pytest.param("stopped task", marks=pytest.mark.full),
        pytest.param("function that asks for no rows", marks=pytest.mark.full),
    ],
)
def test_a_rank_that_holds_the_others_up_is_named(
    spark_cluster: "SparkSession", tmp_path: Path, fault: str
) -> None:
    run = start_run(
        spark_cluster,
        training(tmp_path, fault),
        data=spark_cluster.range(0, 20_000, 1, 4),
        cache=False,
        exchange_timeout=LIMIT,
    )
    begun = await_begun(tmp_path, 1)
    if fault == "stopped task":
        begun.python_worker.send_signal(signal.SIGSTOP)
    # The driver looks four times within the limit; a task has as long again to answer, and Spark 5 s to end it.
    allowed = 2.5 * LIMIT + 5.0 if fault == "stopped task" else 1.5 * LIMIT
    error = error_of(run, begun.at + allowed, f"{fault}, beyond {allowed:g} s")
    print(error)
    assert isinstance(error, NodeLostError)
    assert error.rank == 1
    assert "Worker 1 on" in str(error)
    assert "3 s (exchange_timeout)" in str(error)
    said = {
        "stopped node": "(as if it was stopped|for it to ask for its next rows)",
        "stopped task": "its Spark task does not answer",
        "function that asks for no rows": "for it to ask for its next rows",
    }
    assert re.search(said[fault], str(error))


@pytest.mark.fault
@pytest.mark.full
@pytest.mark.usefixtures("session_ends_with_test")
def test_where_nobody_can_tell_who_is_missing_the_wait_ends_all_the_same(
    spark_cluster: "SparkSession", tmp_path: Path
) -> None:
    run = start_run(
        spark_cluster,
        training(tmp_path, "function that asks for no rows"),
        data=spark_cluster.range(0, 20_000, 1, 4),
        cache=False,
        exchange_timeout=LIMIT,
        driver_host="127.0.0.9",  # nobody listens there: the nodes meet by Spark's barrier
    )
    error = error_of(run, await_begun(tmp_path, 1).at + 1.5 * LIMIT, "nobody knows whom a stream waits for")
    assert isinstance(error, PeerError)
    assert "Chief 0 on" in str(error)
    assert "within 3 s (exchange_timeout)" in str(error)
    assert "driver_host" in error.fix


class Slow:
    """A source of two files whose second gives nothing for a while, until it is told to go on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fragments(self) -> list[Fragment]:
        return [Fragment(path=name, rows=5000) for name in ("a", "b")]

    def read(self, fragment: Fragment, start: int, stop: int | None) -> Iterator[Any]:
        for number in range(5):
            if fragment.path == "b" and number == 3:
                await_file(self.folder / "go")
            yield pa.RecordBatch.from_pydict({"id": range(1000)})


@pytest.mark.fault
def test_a_rank_whose_source_is_slow_is_waited_for(
    spark_cluster: "SparkSession", tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def train(ctx: Any) -> int:
        return sum(len(batch["id"]) for batch in ctx.dataset(columns=["id"], batch_size=64))

    with caplog.at_level(logging.WARNING, "emberflow"):
        run = start_run(spark_cluster, train, data=Slow(tmp_path), cache=False, exchange_timeout=LIMIT)
        deadline = time.monotonic() + START
        while caplog.text.count("is waiting for rows; others have waited") < 2:
            assert time.monotonic() < deadline
            assert not run.done(), run.exception()
            threading.Event().wait(0.05)
        (tmp_path / "go").touch()
        result = run.result(timeout=START)
    assert [report.value for report in result.reports] == [5000, 5000]
    assert "worker 1 on" in caplog.text
