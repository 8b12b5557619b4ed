"""TFRecord through Spark: two executors, classic and Connect."""

import datetime as dt
import decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, LongType, Row, StructType

from emberflow import tfrecord
from emberflow.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.skipif(pyspark.__version__ < "4", reason="the format needs Spark 4.0"),
    pytest.mark.filterwarnings("ignore:TFRecord has no 64 bit fractions"),
]
ON_BOTH = pytest.mark.parametrize("spark", ["cluster", "connect"], indirect=True)
CLUSTER_FIRST = pytest.mark.parametrize(
    "spark", ["cluster", pytest.param("connect", marks=pytest.mark.full)], indirect=True
)

TYPES = """
    b byte, s short, i int, l long, f float, d double, t boolean, txt string, bin binary, day date,
    at timestamp, wall timestamp_ntz, dec decimal(10,2), ints array<int>, txts array<string>,
    doubles array<double>, flags array<boolean>, days array<date>, empty array<long>, none string
"""
VALUES = (
    -3,
    300,
    -70000,
    1 << 60,
    0.5,
    0.1,
    True,
    "é",
    bytearray(b"\xff\x00"),
    dt.date(2024, 2, 29),
    dt.datetime(2024, 2, 29, 12, 30, 1, 5),
    dt.datetime(1, 1, 1),
    decimal.Decimal("12.50"),
    [1, -1],
    ["a", ""],
    [0.1],
    [True, False],
    [dt.date(1900, 1, 1)],
    [],
    None,
)


NESTED = ArrayType(ArrayType(LongType()))


def numbers(spark: "SparkSession", stop: int, slices: int = 4) -> "DataFrame":
    return spark.range(0, stop, 1, slices).select("id", sf.col("id").cast("string").alias("name"))


def ids(frame: "DataFrame") -> list[int]:
    return sorted(row["id"] for row in frame.select("id").collect())


def files_in(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.rglob("part-*") if not any(p.startswith(("_", ".")) for p in path.parts)
    )


@pytest.mark.smoke
@ON_BOTH
def test_each_type_comes_back_with_its_schema(spark: "SparkSession", tmp_path: Path) -> None:
    frame = spark.createDataFrame([VALUES, (None,) * len(VALUES)], TYPES)
    path = str(tmp_path / "out")
    frame.write.format("tfrecord").mode("append").option("doubles", "bytes").save(path)
    back = spark.read.format("tfrecord").schema(frame.schema).load(path)
    assert sorted(map(str, back.collect())) == sorted(map(str, frame.collect()))


@CLUSTER_FIRST
def test_vectors_and_arrays_of_arrays(spark: "SparkSession", tmp_path: Path) -> None:
    rows = [(Vectors.dense([0.1, 2.0]), [[1, 2], []]), (Vectors.sparse(3, {1: 4.0}), []), (None, None)]
    frame = spark.createDataFrame(rows, StructType().add("v", VectorUDT()).add("n", NESTED))
    path = str(tmp_path / "out")
    options = {"recordType": "SequenceExample", "doubles": "bytes"}
    frame.write.format("tfrecords").mode("overwrite").options(**options).save(path)
    back = spark.read.format("tfrecords").schema(frame.schema).options(**options).load(path).collect()
    assert {str(row) for row in back} == {
        str(Row(v=Vectors.dense([0.1, 2.0]), n=[[1, 2], []])),
        str(Row(v=Vectors.dense([0.0, 4.0, 0.0]), n=[])),
        str(Row(v=None, n=None)),
    }


@CLUSTER_FIRST
def test_a_schema_is_inferred_and_columns_are_chosen(spark: "SparkSession", tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    numbers(spark, 100).withColumn("one_or_many", sf.expr("sequence(0, id % 3)")).write.format(
        "tfrecord"
    ).mode("append").save(path)
    frame = spark.read.format("tfrecord").load(path)
    assert frame.schema.simpleString() == "struct<id:bigint,name:string,one_or_many:array<bigint>>"
    assert ids(frame) == list(range(100))
    assert spark.read.format("tfrecord").option("columns", "name").load(path).columns == ["name"]
    with pytest.raises(PySparkException, match="features that were not found"):
        spark.read.format("tfrecord").option("columns", "nam").load(path).printSchema()


@CLUSTER_FIRST
def test_a_large_file_is_read_by_many_tasks(spark: "SparkSession", tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    numbers(spark, 20_000, slices=1).write.format("tfrecord").mode("append").save(path)
    assert len(files_in(tmp_path)) == 1
    frame = spark.read.format("tfrecord").option("splitBytes", 100_000).load(path)
    tasks = frame.select(sf.spark_partition_id().alias("task"), "id")
    assert tasks.select("task").distinct().count() > 5
    row = tasks.agg(sf.count("id"), sf.count_distinct("id"), sf.max("id")).first()
    assert row is not None
    assert tuple(row) == (20_000, 20_000, 19_999)


@CLUSTER_FIRST
def test_lists_of_paths_globs_and_compression(spark: "SparkSession", tmp_path: Path) -> None:
    for place, codec in enumerate(("none", "gzip", "zlib")):
        numbers(spark, 10).write.format("tfrecord").option("compression", codec).mode("append").save(
            f"{tmp_path}/{place}"
        )
    assert {path.name.partition(".")[2] for path in files_in(tmp_path)} == {
        "tfrecord",
        "tfrecord.gz",
        "tfrecord.deflate",
    }
    reader = spark.read.format("tfrecord")
    assert reader.load([f"{tmp_path}/0", f"{tmp_path}/1"]).count() == 20
    assert reader.load(f"{tmp_path}/[0-2]").count() == 30
    assert reader.load(f"{tmp_path}/1,{tmp_path}/2").count() == 20


@CLUSTER_FIRST
def test_modes_that_spark_refuses_and_ours_that_takes_them(spark: "SparkSession", tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    for mode in ("error", "ignore"):
        with pytest.raises(PySparkException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
            numbers(spark, 3).write.format("tfrecord").mode(mode).save(path)
    with pytest.raises(PySparkException, match="partitioning"):
        numbers(spark, 3).write.format("tfrecord").mode("append").partitionBy("id").save(path)

    tfrecord.write(numbers(spark, 3), path)
    with pytest.raises(StorageError, match="which exists"):
        tfrecord.write(numbers(spark, 3), path)
    tfrecord.write(numbers(spark, 3), path, mode="ignore")
    read = spark.read.format("tfrecord")
    assert ids(read.load(path)) == [0, 1, 2]
    tfrecord.write(numbers(spark, 2), path, mode="append", options={"compression": "gzip", "verifyCrc": True})
    assert ids(read.load(path)) == [0, 0, 1, 1, 2]
    tfrecord.write(numbers(spark, 4), path, mode="overwrite")
    assert ids(read.load(path)) == [0, 1, 2, 3]
    assert (tmp_path / "out" / "_SUCCESS").exists()
    with pytest.raises(ConfigError, match="mode='replace'"):
        tfrecord.write(numbers(spark, 4), path, mode="replace")


@CLUSTER_FIRST
def test_partition_folders(spark: "SparkSession", tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    frame = (
        numbers(spark, 20)
        .withColumn("half", (sf.col("id") % 2).cast("int"))
        .withColumn("day", sf.lit("2024-01-01"))
    )
    tfrecord.write(frame, path, partition_by=["day", "half"])
    assert {str(file.parent.relative_to(path)) for file in files_in(tmp_path)} == {
        "day=2024-01-01/half=0",
        "day=2024-01-01/half=1",
    }
    back = spark.read.format("tfrecord").load(path)
    assert back.schema.simpleString() == "struct<id:bigint,name:string,day:date,half:int>"
    assert back.where("half = 1").count() == 10
    assert back.where("id % 2 <> half").count() == 0


@pytest.mark.fault
@CLUSTER_FIRST
def test_broken_records_by_mode(spark: "SparkSession", tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    numbers(spark, 10, slices=1).write.format("tfrecord").mode("append").save(path)
    (file,) = files_in(tmp_path)
    data = bytearray(file.read_bytes())
    data[20] ^= 1
    file.write_bytes(data)
    read = spark.read.format("tfrecord").schema("id long, _corrupt_record binary")
    with pytest.raises(PySparkException, match="checksum of a record is wrong"):
        read.load(path).count()
    assert ids(read.option("mode", "DROPMALFORMED").load(path)) == list(range(1, 10))
    rows = read.option("mode", "PERMISSIVE").load(path).collect()
    assert [row["id"] for row in rows] == [None, *range(1, 10)]
    assert len(rows[0]["_corrupt_record"]) > 10


@CLUSTER_FIRST
def test_columns_to_examples_and_back(spark: "SparkSession", tmp_path: Path) -> None:
    tfrecord.register(spark)
    path = str(tmp_path / "raw")
    schema = "id long, name string, many array<float>"
    frame = numbers(spark, 50).withColumn(
        "many", sf.expr("transform(sequence(0, id % 4), x -> cast(x as float))")
    )
    examples = frame.select(tfrecord.to_example(sf.struct("id", "name", "many")).alias("example"))
    back = examples.select(tfrecord.from_example("example", schema).alias("row")).select("row.*")
    assert sorted(back.collect()) == sorted(frame.collect())
    examples.write.format("tfrecord").option("recordType", "ByteArray").mode("append").save(path)
    assert sorted(spark.read.format("tfrecord").schema(schema).load(path).collect()) == sorted(
        frame.collect()
    )
    raw = spark.read.format("tfrecord").option("recordType", "ByteArray").load(path)
    assert raw.columns == ["byteArray"]


@CLUSTER_FIRST
def test_a_stream_reads_and_writes_each_row_once_over_restarts(spark: "SparkSession", tmp_path: Path) -> None:
    source, target, checkpoint = (str(tmp_path / name) for name in ("in", "out", "checkpoint"))
    numbers(spark, 10).write.format("tfrecord").mode("append").save(source)

    def run() -> None:
        stream = spark.readStream.format("tfrecord").option("maxFilesPerTrigger", 2).load(source)
        writer = stream.writeStream.format("tfrecord").option("path", target)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        assert query.awaitTermination(100)
        assert query.exception() is None

    run()
    assert ids(spark.read.format("tfrecord").load(target)) == list(range(10))
    numbers(spark, 15).where("id >= 10").write.format("tfrecord").mode("append").save(source)
    run()
    run()
    assert ids(spark.read.format("tfrecord").load(target)) == list(range(15))
