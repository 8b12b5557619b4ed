"""Files between TensorFlow and us, both ways: TensorFlow is the judge of the format."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import tensorflow as tf
from emberflow.tfrecord.codec.encode import encode
from emberflow.tfrecord.codec.feature_columns import columns_of
from emberflow.tfrecord.compression import CODECS
from emberflow.tfrecord.input_files import find_files, split_files
from emberflow.tfrecord.options import parse_options
from emberflow.tfrecord.part_reader import infer_schema, make_plan, read_parts
from emberflow.tfrecord.record_files import writing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = pa.table(
    {
        "label": pa.array([7, -1, None, 1 << 62], pa.int64()),
        "flag": [True, False, True, None],
        "score": pa.array([0.5, None, -1.5, 3.25], pa.float32()),
        "image": pa.array([b"\xff\x00" * 200, b"", None, b"x"], pa.binary()),
        "name": ["é", "", None, "z" * 300],
        "pixels": pa.array([[0.25] * 300, [1.0], [], None], pa.list_(pa.float32())),
        "words": [["a", "", "ccc"], [], ["x"], None],
        "ids": pa.array([[1, -1, 300], [1 << 40], [], None], pa.list_(pa.int64())),
    }
)
TF_COMPRESSION = {"none": "", "gzip": "GZIP", "zlib": "ZLIB"}


def write(table: Any, path: Path, compression: Any = "none", record_type: Any = "Example") -> str:
    (batch,) = table.combine_chunks().to_batches()
    name = str(path / f"x{CODECS[compression].suffix}")
    with writing(name, CODECS[compression]) as out:
        out.write(encode(batch, columns_of(batch.schema, record_type), record_type, "float").data)
    return name


def read(path: Any, schema: Any = None, **options: str) -> list[dict[str, Any]]:
    parsed = parse_options({"path": str(path), **options})
    files = find_files(parsed)
    schema = infer_schema(files, parsed) if schema is None else schema
    plan = make_plan(schema, parsed, [])
    return [
        row
        for task in split_files(files, parsed)
        for batch in read_parts(task, plan, parsed)
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("compression", TF_COMPRESSION)
def test_tensorflow_reads_what_we_write(tmp_path: Path, compression: str) -> None:
    path = write(TABLE, tmp_path, compression)
    dataset = tf.data.TFRecordDataset(path, compression_type=TF_COMPRESSION[compression]).batch(10)
    spec = {
        "label": tf.io.FixedLenFeature([], tf.int64, default_value=-9),
        "flag": tf.io.FixedLenFeature([], tf.int64, default_value=-9),
        "score": tf.io.FixedLenFeature([], tf.float32, default_value=-9),
        "image": tf.io.FixedLenFeature([], tf.string, default_value="none"),
        "name": tf.io.FixedLenFeature([], tf.string, default_value="none"),
        "pixels": tf.io.RaggedFeature(tf.float32),
        "words": tf.io.RaggedFeature(tf.string),
        "ids": tf.io.RaggedFeature(tf.int64),
    }
    (batch,) = [tf.io.parse_example(records, spec) for records in dataset]
    assert batch["label"].numpy().tolist() == [7, -1, -9, 1 << 62]
    assert batch["flag"].numpy().tolist() == [1, 0, 1, -9]
    assert batch["score"].numpy().tolist() == [0.5, -9, -1.5, 3.25]
    assert batch["image"].numpy().tolist() == [b"\xff\x00" * 200, b"", b"none", b"x"]
    assert batch["name"].numpy().tolist() == ["é".encode(), b"", b"none", b"z" * 300]
    assert batch["pixels"].to_list() == [[0.25] * 300, [1.0], [], []]
    assert batch["words"].to_list() == [[b"a", b"", b"ccc"], [], [b"x"], []]
    assert batch["ids"].to_list() == [[1, -1, 300], [1 << 40], [], []]


def test_tensorflow_reads_our_sequence_examples(tmp_path: Path) -> None:
    table = pa.table(
        {
            "label": pa.array([1, 2], pa.int64()),
            "steps": pa.array([[[1.0, 2.0], [], [3.0]], []], pa.list_(pa.list_(pa.float32()))),
            "words": [[["a"], ["b", "c"]], [["d"]]],
        }
    )
    path = write(table, tmp_path, record_type="SequenceExample")
    for record, row in zip(tf.data.TFRecordDataset(path), table.to_pylist(), strict=True):
        context, lists = tf.io.parse_single_sequence_example(
            record,
            {"label": tf.io.FixedLenFeature([], tf.int64)},
            {"steps": tf.io.RaggedFeature(tf.float32), "words": tf.io.RaggedFeature(tf.string)},
        )
        assert int(context["label"]) == row["label"]
        assert lists["steps"].to_list() == row["steps"]
        assert lists["words"].to_list() == [[word.encode() for word in part] for part in row["words"]]


def feature(**kind: Any) -> Any:
    lists = {
        "int64_list": tf.train.Int64List,
        "float_list": tf.train.FloatList,
        "bytes_list": tf.train.BytesList,
    }
    return tf.train.Feature(**{name: lists[name](value=values) for name, values in kind.items()})


@pytest.mark.parametrize("compression", TF_COMPRESSION)
def test_we_read_what_tensorflow_writes(tmp_path: Path, compression: str) -> None:
    path = str(tmp_path / f"x{CODECS[compression].suffix}")
    with tf.io.TFRecordWriter(path, TF_COMPRESSION[compression]) as writer:
        for number in range(500):
            features = {
                "id": feature(int64_list=[number - 250]),
                "pixels": feature(float_list=[number / 4] * (number % 3)),
                "name": feature(bytes_list=[f"né{number}".encode()]),
                "raw": feature(bytes_list=[bytes([255, number % 256])]),
                "nothing": tf.train.Feature(),
                "mixed": feature(int64_list=[number]) if number % 2 else feature(float_list=[0.5]),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    rows = read(tmp_path, batchBytes="4096")
    assert rows == [
        {
            "id": number - 250,
            "mixed": float(number) if number % 2 else 0.5,
            "name": f"né{number}",
            "nothing": None,
            "pixels": [number / 4] * (number % 3),
            "raw": bytes([255, number % 256]),
        }
        for number in range(500)
    ]


def test_we_read_tensorflows_sequence_examples(tmp_path: Path) -> None:
    path = str(tmp_path / "x.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for number in range(20):
            steps = [feature(int64_list=list(range(step))) for step in range(number % 4)]
            message = tf.train.SequenceExample(
                context=tf.train.Features(feature={"id": feature(int64_list=[number])}),
                feature_lists=tf.train.FeatureLists(feature_list={"s": tf.train.FeatureList(feature=steps)}),
            )
            writer.write(message.SerializeToString())
    expected = [
        {"id": number, "s": [list(range(step)) for step in range(number % 4)]} for number in range(20)
    ]
    assert read(path, recordType="SequenceExample") == expected


def seen_ids(ctx: Any) -> dict[str, list[int]]:
    """Return the ids that a node was given, file by file of the run's data."""
    return {
        name: [
            int(one)
            for x, y in ctx.dataset(name, features="pixels", label="id", batch_size=7)
            for one in y.numpy().tolist()
            if x.shape[1:] == (3,)
        ]
        for name in ("train", "validation")
    }


def test_nodes_read_their_own_files(spark_cluster: "SparkSession", tmp_path: Path) -> None:
    import emberflow as ef

    for folder, compression, files in (("train", "none", 3), ("validation", "gzip", 2)):
        for file in range(files):
            (tmp_path / folder / str(file)).mkdir(parents=True)
            table = pa.table({"id": range(50), "pixels": [[0.5] * 3] * 50})
            write(table, tmp_path / folder / str(file), compression)
    features = {"pixels": "float[3]", "id": "int64"}
    data = {
        name: ef.TFRecords(str(tmp_path / name / "*"), features=features) for name in ("train", "validation")
    }
    result = ef.run(seen_ids, workers=2, data=data, spark=spark_cluster)
    for name, files in (("train", 3), ("validation", 2)):
        assert sorted(one for report in result.reports for one in report.value[name]) == sorted(
            list(range(50)) * files
        )
