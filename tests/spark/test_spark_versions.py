"""What is done in another way on an older Spark: both ways on each."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

import emberflow as ef
from emberflow._driver import row_routing, spark_versions
from emberflow._driver.row_routing import directed_rows, read_data
from emberflow._plan.stages import Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RANKS = 7
IS_OLD = spark_versions.parse_version(pyspark.__version__) < (4, 0)

pytestmark = pytest.mark.smoke


@pytest.fixture(params=["its own", "3.5"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have Emberflow take this Spark for another one."""
    if request.param == "3.5":
        for module in (spark_versions, row_routing):
            monkeypatch.setattr(module, "offers", lambda _, feature: feature.since <= (3, 5))
    return str(request.param)


def number_of_the_task(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    for batch in batches:
        number = pa.array([context.partitionId()] * batch.num_rows, pa.int32())
        yield pa.RecordBatch.from_arrays([number, batch.column("id")], names=["task", "id"])


def test_each_row_goes_to_the_task_of_its_rank(spark_local: "SparkSession", way: str) -> None:
    frame = spark_local.range(0, 1001, 1, 3)
    stage = Stage(first_rank=0, ranks=RANKS, gpus=0)
    rows = directed_rows(read_data(frame), stage, RANKS).mapInArrow(number_of_the_task, "task int, id long")
    found = rows.collect()
    assert sorted(row["id"] for row in found) == list(range(1001))
    starts = [0, 333, 667]  # of the partitions: rows are dealt round from each
    for row in found:
        partition = sum(row["id"] >= start for start in starts) - 1
        assert row["task"] == (row["id"] - starts[partition] + partition) % RANKS


def test_tfrecord_files_are_read_and_written_by_functions(
    spark_local: "SparkSession", way: str, tmp_path: Path
) -> None:
    rows = [(number, f"é{number}", [0.5, number / 4], "ab"[number % 2]) for number in range(20)]
    frame = spark_local.createDataFrame(rows, "id long, name string, image array<float>, kind string")
    path = str(tmp_path / "rows")
    ef.tfrecord.write(frame.repartition(3), path, partition_by=["kind"], options={"compression": "gzip"})

    inferred = ef.tfrecord.read(spark_local, path)
    assert sorted(map(tuple, inferred.select(frame.columns).collect())) == rows
    declared = ef.tfrecord.read(spark_local, f"{path}/kind=a", schema="id long, name string")
    assert sorted(map(tuple, declared.collect())) == [row[:2] for row in rows if row[3] == "a"]

    with pytest.raises(ef.StorageError, match="which exists"):
        ef.tfrecord.write(frame, path)
    ef.tfrecord.write(frame, path, mode="ignore")
    ef.tfrecord.write(frame, path, mode="append", partition_by=["kind"])
    assert ef.tfrecord.read(spark_local, path).count() == 40
    ef.tfrecord.write(frame.limit(5), path, mode="overwrite")
    assert ef.tfrecord.read(spark_local, path).count() == 5
    assert [each.name for each in Path(path).iterdir() if each.name.startswith("_temp")] == []


def test_a_write_that_fails_leaves_the_old_rows(
    spark_local: "SparkSession", way: str, tmp_path: Path
) -> None:
    from pyspark.sql import functions as F

    path = str(tmp_path / "rows")
    ef.tfrecord.write(spark_local.range(8), path)
    late = F.when(F.col("id") == 99, F.raise_error(F.lit("stop"))).otherwise(F.col("id"))
    with pytest.raises(Exception, match="stop"):
        ef.tfrecord.write(spark_local.range(0, 100, 1, 2).select(late.alias("id")), path, mode="overwrite")
    assert sorted(row["id"] for row in ef.tfrecord.read(spark_local, path).collect()) == list(range(8))


@pytest.mark.skipif(not IS_OLD, reason="this Spark has the format")
def test_what_spark_3_cannot_do_says_from_which_version_on_it_works(spark_local: "SparkSession") -> None:
    with pytest.raises(ef.ClusterError, match=r'"tfrecord" needs Spark 4\.0') as caught:
        ef.tfrecord.register(spark_local)
    assert "ef.tfrecord.read" in caught.value.fix
    with pytest.raises(ef.ClusterError, match=r"needs Spark 4\.1"):
        ef.tfrecord.to_example("column")
