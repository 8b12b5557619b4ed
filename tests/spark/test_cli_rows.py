"""Rows of commands on Spark: idx in partitions, csv without a header, files that tasks read, lines of text."""

import gzip
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from emberflow.cli.convert import run_convert
from emberflow.cli.file_rows import rows_from_files, source_of
from emberflow.cli.spark_files import read_rows
from emberflow.cli.text_lines import lines_of
from emberflow.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LABELS = [7, 2, 1, 0, 4, 1, 4]
PIXELS = [[(row * 6 + at) % 256 for at in range(6)] for row in range(len(LABELS))]


def write_idx(folder: Path) -> str:
    """Write seven images of two by three and their labels, as MNIST is distributed; return the file of images."""
    images, labels = folder / "train-images-idx3-ubyte.gz", folder / "train-labels-idx1-ubyte.gz"
    head = b"\0\0\x08\x03" + struct.pack(">III", len(LABELS), 2, 3)
    images.write_bytes(gzip.compress(head + bytes(value for row in PIXELS for value in row)))
    labels.write_bytes(gzip.compress(b"\0\0\x08\x01" + struct.pack(">I", len(LABELS)) + bytes(LABELS)))
    return str(images)


def parts_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*"))


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory, sessions: object) -> Path:
    """A folder with the idx files, and what three partitions of csv and of TFRecord are made of them."""
    sessions.get("cluster")  # type: ignore[attr-defined]
    folder = tmp_path_factory.mktemp("idx")
    images = write_idx(folder)
    for to in ("csv", "tfrecord"):
        assert run_convert(images, str(folder / to), to=to, partitions=3) == 0
    return folder


def test_idx_becomes_lines_of_csv_one_file_per_partition(
    spark_cluster: "SparkSession", converted: Path
) -> None:
    files = parts_of(converted / "csv")
    assert len(files) == 3
    lines = sorted(line for file in files for line in file.read_text().splitlines())
    assert lines == sorted(
        ",".join(map(str, [label, *pixels])) for label, pixels in zip(LABELS, PIXELS, strict=True)
    )
    assert (converted / "csv" / "_SUCCESS").exists()


def test_lines_of_csv_are_read_as_a_label_and_an_array(
    spark_cluster: "SparkSession", converted: Path
) -> None:
    rows = read_rows(spark_cluster, str(converted / "csv"), None, [], "label long, image float[6]")
    assert rows.dtypes == [("label", "bigint"), ("image", "array<float>")]
    found = sorted((row["label"], row["image"]) for row in rows.collect())
    assert found == sorted(zip(LABELS, PIXELS, strict=True))
    wrong = read_rows(spark_cluster, str(converted / "csv"), None, [], "label long, image float[5]")
    with pytest.raises(
        PySparkException, match=r"Expected 6 values in each line of .*Received: 7 values in the line"
    ):
        wrong.collect()


@pytest.mark.parametrize("columns", ["label", "label long image float", "label long, image float[0]"])
def test_columns_that_cannot_be_read_are_refused(spark_cluster: "SparkSession", columns: str) -> None:
    with pytest.raises(ConfigError, match="names with Spark's types"):
        read_rows(spark_cluster, "nowhere", None, [], columns)


@pytest.mark.parametrize("tasks", [None, 2, 5])
def test_tasks_read_their_own_share_of_tfrecord_files(
    spark_cluster: "SparkSession", converted: Path, tasks: int | None
) -> None:
    assert len(parts_of(converted / "tfrecord")) == 3
    source = source_of(str(converted / "tfrecord"), "tfrecord")
    rows = rows_from_files(spark_cluster, source, tasks)
    found = sorted((row["label"], row["image"]) for row in rows.collect())
    assert found == sorted(zip(LABELS, PIXELS, strict=True))


def test_rows_become_lines_of_text(spark_cluster: "SparkSession") -> None:
    rows = spark_cluster.sql(
        "select 7L as label, 7.0D as prediction, 0.25F as score, array(1, 2) as near, null as none"
    )
    (line,) = lines_of(rows, "{now} Label: {label}, Prediction: {prediction}").collect()
    time, rest = line["value"].split(" ", 1)
    assert rest == "Label: 7, Prediction: 7"
    assert len(time) == len("2026-11-15T10:00:00.561506")
    assert time[10] == "T"
    (line,) = lines_of(rows, "{score} {near} {none}{{}}").collect()
    assert line["value"] == "0.25 [1,2] null{}"
    for wrong in ("label", "{labels}", "{label"):
        with pytest.raises(ConfigError, match="in braces"):
            lines_of(rows, wrong)


def test_what_is_refused_before_spark_starts_to_convert(
    spark_cluster: "SparkSession", converted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = str(converted / "train-images-idx3-ubyte.gz")
    assert run_convert(images, str(converted / "csv"), to="csv", partitions=2) == 2
    assert "which exists" in capsys.readouterr().err
    assert run_convert(images, str(converted / "tfrecord"), to="tfrecord", partitions=2) == 2
    assert "which exists" in capsys.readouterr().err
    assert run_convert(images, str(converted / "other"), to="idx", partitions=2) == 2
    assert "is read, not written" in capsys.readouterr().err
    assert run_convert(images, str(converted / "other.csv"), master="local[2]") == 2
    assert "--partitions 10" in capsys.readouterr().err
    assert not (converted / "other").exists()
