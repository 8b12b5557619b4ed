"""The spool on a real cluster: bounded memory, no room, settings put back, what reports say of the feed."""

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
import pytest

import emberflow as ef
from emberflow._feed.file_source import Fragment
from emberflow._feed.spool import CHUNK_BYTES
from emberflow.errors import DataError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("nothing_left")

IMAGE = 100_000
ROWS = 6_000
ARROW = "spark.sql.execution.arrow.maxRecordsPerBatch"


def reset_peak(batches: Iterator[Any]) -> Iterator[Any]:
    """Forget the highest memory that this Spark Python worker ever had; say what it has now."""
    for _ in batches:
        pass
    Path("/proc/self/clear_refs").write_text("5")
    process = psutil.Process()
    yield pa.RecordBatch.from_pydict({"pid": [process.pid], "bytes": [process.memory_info().rss]})


def peak_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM"))


def test_a_shard_larger_than_the_memory_it_may_take(spark_cluster: "SparkSession") -> None:
    """300 MB for each worker: neither the Spark task nor the node may hold more than a part of it."""
    from pyspark.sql import functions as F

    image = F.repeat(F.lit("x"), IMAGE).cast("binary")
    frame = spark_cluster.range(0, ROWS, 1, 6).select("id", image.alias("image"))
    # Several rounds: whichever worker processes the executors keep, all have been reset.
    resets = [
        row
        for _ in range(2)
        for row in spark_cluster.range(0, 2, 1, 2)
        .mapInArrow(reset_peak, "pid long, bytes long", barrier=True)
        .collect()
    ]

    def look(ctx: Any) -> tuple[int, int, int, int]:
        me = psutil.Process()
        task = psutil.Process(me.ppid()).ppid()  # above the node is its keeper
        rows = sum(batch.num_rows for batch in ctx.arrow())
        own = next(
            int(line.split()[1]) << 10
            for line in Path("/proc/self/smaps_rollup").read_text().splitlines()
            if line.startswith("Anonymous:")
        )
        return rows, task, peak_of(task), own

    result = ef.run(look, workers=2, data=frame, spark=spark_cluster, verbose=False)
    before = {row.pid: row.bytes for row in resets}
    assert sum(report.value[0] for report in result.reports) == ROWS
    for report in result.reports:
        _, task, peak, own = report.value
        assert report.feed["bytes"] > 0.4 * ROWS * IMAGE
        assert peak - before.get(task, 0) < 5 * CHUNK_BYTES
        assert own < 5 * CHUNK_BYTES


@pytest.mark.fault
def test_a_spool_beyond_its_limit_is_an_error(spark_cluster: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"spool_limit=1000 bytes") as caught:
        ef.run(
            lambda _: None,
            workers=2,
            data=spark_cluster.range(10_000),
            spool_dir=str(tmp_path / "spools"),
            spool_limit=1000,
            spark=spark_cluster,
            verbose=False,
        )
    assert "cache=False" in caught.value.fix
    assert list((tmp_path / "spools").iterdir()) == []


class FullDisk:
    """A source whose rows find no room: a limit on file sizes stands in for a full disk."""

    def fragments(self) -> list[Fragment]:
        return [Fragment(path=str(number), rows=3_000_000) for number in range(2)]

    def read(self, fragment: Fragment, start: int, stop: int | None) -> Iterator[Any]:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
        try:
            for _ in range(30):
                yield pa.RecordBatch.from_arrays([pa.nulls(100_000, pa.int64()).fill_null(1)], ["x"])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.fault
def test_a_full_disk_is_an_error_with_a_way_out(spark_cluster: "SparkSession") -> None:
    with pytest.raises(DataError, match=r"needs room on local disk(.|\n)*File too large") as caught:
        ef.run(lambda _: None, workers=2, data=FullDisk(), spark=spark_cluster, verbose=False)
    assert "spool_dir=" in caught.value.fix


def test_reports_say_what_was_fed_and_settings_are_put_back(spark_cluster: "SparkSession") -> None:
    spark_cluster.conf.set(ARROW, "1234")
    try:
        result = ef.run(
            lambda ctx: (ctx.rows(), [batch.num_rows for batch in ctx.arrow()]),
            workers=2,
            data=spark_cluster.range(50_000),
            spark=spark_cluster,
            verbose=False,
        )
        assert spark_cluster.conf.get(ARROW) == "1234"
    finally:
        spark_cluster.conf.unset(ARROW)
    for report in result.reports:
        rows, batches = report.value
        assert report.feed["rows"] == rows == sum(batches)
        assert report.feed["bytes"] >= 16 * rows  # the id and the key
        assert report.feed["rows_per_second"] == pytest.approx(rows / report.feed["seconds"])
        assert report.feed["datasets"]["train"]["rows"] == 0  # it took no dataset
        assert report.feed["waiting_for"] in ("source", "sink", "neither")
    assert sum(report.feed["rows"] for report in result.reports) == 50_000
