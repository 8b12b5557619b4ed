"""Training on streams: every row once, through restarts of the query and a killed driver; errors reach the user."""

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

import pytest
from pyspark.errors import StreamingQueryException

import emberflow as ef
from tests.spark.watching import START

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 10  # in one file


def count_rows(ctx: Any, before_store: Callable[[Any], None] = lambda _: None) -> None:
    """A model of two numbers: the rows that one worker has seen, and the sum of their ids."""
    rows, ids = 0, 0
    for each in ctx.rounds():
        if each.checkpoint:
            rows, ids = json.loads((each.checkpoint / "seen.json").read_text())
        mine = [number for batch in each.arrow() for number in batch.column("id").to_pylist()]
        rows, ids = rows + len(mine), ids + sum(mine)
        seen = json.dumps([rows, ids])
        before_store(each)
        each.save_checkpoint(lambda folder, seen=seen: (folder / "seen.json").write_text(seen))


def write_file(folder: Path, number: int) -> None:
    """Bring the rows of one file; it appears complete."""
    folder.mkdir(exist_ok=True)
    lines = "".join(f'{{"id": {number * ROWS + at}}}\n' for at in range(ROWS))
    (folder / f".{number}").write_text(lines)
    (folder / f".{number}").rename(folder / f"{number:03d}.json")


def files(spark: "SparkSession", folder: Path) -> "DataFrame":
    folder.mkdir(exist_ok=True)
    return spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(f"file:{folder}")


def stored(checkpoint: Path) -> list[int]:
    """Return the newest stored model."""
    records = sorted(
        (path for path in checkpoint.glob("model/generation-*/batch-*.json")),
        key=lambda path: (path.parent.name, path.name),
    )
    record = json.loads(records[-1].read_text())
    seen: list[int] = json.loads((checkpoint / "model" / record["model"] / "seen.json").read_text())
    assert record["rows"] == seen[0]
    return seen


def expected(count: int) -> list[int]:
    return [count * ROWS, sum(range(count * ROWS))]


@pytest.mark.smoke
def test_every_row_is_trained_on_once_through_stops_and_starts(
    spark_cluster: "SparkSession", tmp_path: Path, nothing_left: None
) -> None:
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    with ef.cluster(count_rows, workers=1, spark=spark_cluster, verbose=False) as cluster:
        for first in (0, 2, 4):
            query = cluster.train_stream(files(spark_cluster, source), checkpoint=str(checkpoint))
            for number in (first, first + 1):
                write_file(source, number)
                query.processAllAvailable()
            query.stop()
            assert query.exception() is None
            assert stored(checkpoint) == expected(first + 2)
    with ef.cluster(count_rows, workers=1, spark=spark_cluster, verbose=False) as cluster:
        write_file(source, 6)
        stream = files(spark_cluster, source)
        query = cluster.train_stream(stream, checkpoint=str(checkpoint), trigger={"availableNow": True})
        query.awaitTermination()
    assert stored(checkpoint) == expected(7)


@contextmanager
def stream_driver(
    folder: Path, checkpoint: str = "", environment: dict[str, str] | None = None
) -> "Iterator[subprocess.Popen[bytes]]":
    """Run a driver that trains on the files of a folder; end it afterwards."""
    with (folder / "driver.log").open("wb") as log:
        stored = checkpoint or str(folder / "checkpoint")
        command = [sys.executable, "-m", "tests.spark.stream_driver", str(folder), stored]
        driver = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment)
    try:
        yield driver
    finally:
        driver.kill()
        driver.wait()


def is_stored(checkpoint: Path, batch: int) -> bool:
    return any(checkpoint.glob(f"model/generation-*/batch-{batch:09d}.json"))


def await_that(is_so: Callable[[], bool], driver: "subprocess.Popen[bytes]", folder: Path) -> None:
    deadline = time.monotonic() + START
    while not is_so():
        assert driver.poll() is None, (folder / "driver.log").read_text()
        assert time.monotonic() < deadline, (folder / "driver.log").read_text()
        time.sleep(0.05)


@pytest.mark.fault
@pytest.mark.full
def test_a_driver_is_killed_and_the_next_one_goes_on(
    spark_cluster: "SparkSession", tmp_path: Path, nothing_left: None
) -> None:
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    for number in range(4):
        write_file(source, number)
    with stream_driver(tmp_path) as driver:
        await_that(lambda: is_stored(checkpoint, 1), driver, tmp_path)
        driver.kill()  # while it trains on the third file, or on the fourth
    write_file(source, 4)
    with ef.cluster(count_rows, workers=1, spark=spark_cluster, verbose=False) as cluster:
        query = cluster.train_stream(
            files(spark_cluster, source), checkpoint=str(checkpoint), trigger={"availableNow": True}
        )
        query.awaitTermination()
    assert stored(checkpoint) == expected(5)


@pytest.mark.full
def test_a_query_is_stopped_while_rows_are_brought(
    spark_cluster: "SparkSession", tmp_path: Path, nothing_left: None
) -> None:
    """Spark cancels the job that brings the rows; none of them is trained on before the query starts again."""
    source, checkpoint, gate = tmp_path / "in", tmp_path / "checkpoint", tmp_path / "gate"

    def wait_at_gate(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            Path(f"{gate}-reached").touch()
            while not gate.exists():
                time.sleep(0.05)
            yield batch

    write_file(source, 0)
    with ef.cluster(count_rows, workers=1, spark=spark_cluster, verbose=False) as cluster:
        slow = files(spark_cluster, source).mapInArrow(wait_at_gate, "id long")
        query = cluster.train_stream(slow, checkpoint=str(checkpoint))
        deadline = time.monotonic() + START
        while not Path(f"{gate}-reached").exists():
            assert time.monotonic() < deadline
        query.stop()
        assert query.exception() is None
        gate.touch()
        query = cluster.train_stream(slow, checkpoint=str(checkpoint), trigger={"availableNow": True})
        query.awaitTermination()
    assert stored(checkpoint) == expected(1)


def fail_at_two(ctx: Any) -> None:
    for each in ctx.rounds():
        if each.number == 2:
            raise ValueError("no third round")
        each.save_checkpoint(lambda folder: (folder / "x").write_text("x"))


def test_errors_of_nodes_reach_the_query_and_the_cluster(
    spark_cluster: "SparkSession", tmp_path: Path, nothing_left: None
) -> None:
    for number in range(4):
        write_file(tmp_path / "in", number)
    cluster = ef.cluster(fail_at_two, workers=2, spark=spark_cluster, verbose=False)
    query = cluster.train_stream(files(spark_cluster, tmp_path / "in"), checkpoint=str(tmp_path / "c"))
    with pytest.raises(StreamingQueryException, match=r"no third round") as caught:
        query.awaitTermination()
    assert "fail_at_two" in str(caught.value)
    with pytest.raises(ef.NodeFailedError, match="no third round"):
        cluster.train(spark_cluster.range(4))
    with pytest.raises(ef.NodeFailedError, match="no third round"):
        cluster.stop()


def store_nothing(ctx: Any) -> None:
    for _ in ctx.rounds():
        pass


@pytest.mark.full
def test_a_function_that_stores_nothing_is_told_so(
    spark_cluster: "SparkSession", tmp_path: Path, nothing_left: None
) -> None:
    write_file(tmp_path / "in", 0)
    cluster = ef.cluster(store_nothing, workers=1, spark=spark_cluster, verbose=False)
    query = cluster.train_stream(files(spark_cluster, tmp_path / "in"), checkpoint=str(tmp_path / "c"))
    with pytest.raises(StreamingQueryException, match=r"round\.save_checkpoint"):
        query.awaitTermination()
    with pytest.raises(ef.EmberflowError):
        cluster.stop()


@pytest.mark.full
def test_a_second_cluster_on_the_same_checkpoint_wins(
    spark_cluster: "SparkSession", tmp_path: Path, nothing_left: None
) -> None:
    """Spark refuses two queries of one checkpoint in one session, so the second cluster's query is on another."""
    from emberflow._driver.stream_progress import StreamProgress

    source, checkpoint = tmp_path / "in", tmp_path / "c"
    write_file(source, 0)
    with ef.cluster(count_rows, workers=1, spark=spark_cluster, verbose=False) as cluster:
        query = cluster.train_stream(files(spark_cluster, source), checkpoint=str(checkpoint))
        query.processAllAvailable()
        StreamProgress(str(checkpoint / "model"))  # what another driver does first
        write_file(source, 1)
        with pytest.raises(StreamingQueryException, match="Only the newest driver"):
            query.processAllAvailable()
        assert stored(checkpoint) == expected(1)


@pytest.mark.full
def test_a_new_query_against_an_old_model_is_refused(
    spark_cluster: "SparkSession", tmp_path: Path, nothing_left: None
) -> None:
    source, checkpoint = tmp_path / "in", tmp_path / "c"
    write_file(source, 0)
    with ef.cluster(count_rows, workers=1, spark=spark_cluster, verbose=False) as cluster:
        cluster.train_stream(
            files(spark_cluster, source), checkpoint=str(checkpoint), trigger={"availableNow": True}
        ).awaitTermination()
        (checkpoint / "query").rename(tmp_path / "aside")
        query = cluster.train_stream(
            files(spark_cluster, source), checkpoint=str(checkpoint), trigger={"availableNow": True}
        )
        with pytest.raises(StreamingQueryException, match="must continue the query"):
            query.awaitTermination()
        assert stored(checkpoint) == expected(1)


@pytest.mark.fault
@pytest.mark.full
@pytest.mark.parametrize("moment", ["rows", "stored"])
def test_a_node_that_is_lost_in_a_micro_batch_costs_a_restart_and_no_row(
    spark_cluster: "SparkSession", tmp_path: Path, nothing_left: None, moment: str
) -> None:
    def dying(ctx: Any) -> None:
        def die(each: Any) -> None:
            if ctx.attempt == 0 and each.number == 1:
                if moment == "stored":  # and the driver is not told
                    each.save_checkpoint(lambda folder: (folder / "seen.json").write_text("[0, 0]"))
                os.kill(os.getpid(), signal.SIGKILL)

        count_rows(ctx, before_store=die)

    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    for number in range(4):
        write_file(source, number)
    options: dict[str, Any] = {"workers": 1, "spark": spark_cluster, "verbose": False}
    with ef.cluster(dying, max_restarts=1, **options) as cluster:
        query = cluster.train_stream(
            files(spark_cluster, source), checkpoint=str(checkpoint), trigger={"availableNow": True}
        )
        query.awaitTermination()
    assert stored(checkpoint) == expected(4)
    assert cluster.stop().attempts == 2


@pytest.mark.fault
@pytest.mark.full
def test_of_two_drivers_on_one_checkpoint_the_later_wins(
    spark_cluster: "SparkSession", tmp_path: Path, nothing_left: None
) -> None:
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    write_file(source, 0)
    with stream_driver(tmp_path) as earlier:
        await_that(lambda: is_stored(checkpoint, 0), earlier, tmp_path)
        (tmp_path / "hold").touch()
        write_file(source, 1)
        await_that((tmp_path / "held").exists, earlier, tmp_path)  # it has trained on it, and not stored
        with ef.cluster(count_rows, workers=1, spark=spark_cluster, verbose=False) as cluster:
            query = cluster.train_stream(files(spark_cluster, source), checkpoint=str(checkpoint))
            query.processAllAvailable()
            assert stored(checkpoint) == expected(2)
            went_on = time.time()
            (tmp_path / "go-on").touch()
            assert earlier.wait(START) != 0
            print(f"the earlier of two drivers: ended after {time.time() - went_on:.2f} s")
            assert "Only the newest driver" in (tmp_path / "driver.log").read_text()
            write_file(source, 2)
            query.processAllAvailable()
            query.stop()
            assert query.exception() is None
    assert stored(checkpoint) == expected(3)
