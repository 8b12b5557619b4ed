"""Scored on executors, a model says what it says in one process."""

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from emberflow._score.describe import _describe_locally
from emberflow._score.model_source import LoadOptions, describe_path
from emberflow.errors import ModelError
from emberflow.predict import predict
from tests.tensorflow.scoring_models import (
    CASES,
    ROWS,
    Case,
    Mean,
    floats,
    lists,
    mlp,
    plain_tensorflow,
    string_input,
    tensorflow_one,
    tf_keras_model,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPTIONS: dict[str, Any] = {"cnn": {"dtypes": {"image": "uint8"}}}
QUICK = {"mlp", "multi_input", "string_input"}


def frame(spark: "SparkSession", table: dict[str, Any], partitions: int = 3) -> "DataFrame":
    with_ids = pa.table({"id": np.arange(len(next(iter(table.values()))))} | table)
    if spark.version < "4":  # takes no table of Arrow
        rows = [tuple(row.values()) for row in with_ids.to_pylist()]
        return spark.createDataFrame(rows, from_arrow_schema(with_ids.schema)).repartition(partitions)
    return spark.createDataFrame(with_ids).repartition(partitions)


def collected(scored: "DataFrame", *columns: str) -> list[Any]:
    rows = scored.select("id", *columns).collect()
    return sorted(rows, key=lambda row: row["id"])


def expected(case: Case) -> list[Any]:
    answer = case.model.predict(case.rows, verbose=0)
    return keras.tree.flatten(answer)


def differences(scored: "DataFrame", case: Case, new: list[str]) -> list[float]:
    """Return the largest difference of each output, relative to its size where that is above 1."""
    rows = collected(scored, *new)
    assert len(rows) == ROWS
    return [
        float((np.abs(np.array([row[name] for row in rows]) - want) / np.maximum(1, np.abs(want))).max())
        for name, want in zip(new, expected(case), strict=True)
    ]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.full) for name in CASES]
)
def test_equals_one_process_as_keras_object_keras_file_and_saved_model(
    spark_cluster: "SparkSession", tmp_path: Path, name: str
) -> None:
    case = CASES[name]()
    df = frame(spark_cluster, case.table)
    options = {"inputs": case.inputs, "batch_size": 5} | OPTIONS.get(name, {})
    scored = predict(df, case.model, **options)
    new = scored.columns[len(df.columns) :]
    assert new == (["score", "square"] if name == "multi_output" else ["prediction"])
    assert max(differences(scored, case, new)) < 1e-6

    path = str(tmp_path / "model.keras")
    case.model.save(path)
    own = {"custom_objects": {"scoring_models>Mean": Mean}} if name == "ragged_text" else {}
    assert max(differences(predict(df, path, **options, **own), case, new)) < 1e-6

    if name != "ragged_text":  # a signature of an export takes dense tensors only: see the next test
        folder = str(tmp_path / "exported")
        case.model.export(folder, verbose=False)
        scored = predict(df, folder, **options)
        assert max(differences(scored, case, scored.columns[len(df.columns) :])) < 1e-6


def test_open_lengths_give_the_same_whatever_stands_beside_them(spark_cluster: "SparkSession") -> None:
    token = keras.Input((None,), dtype="int32", name="tokens")
    pooled = keras.layers.GlobalMaxPooling1D()(keras.layers.Embedding(9, 4)(token))
    model = keras.Model(token, keras.layers.Dense(2)(pooled))
    tokens = [[(at * 5 + word) % 9 for word in range(at % 3 + 1)] for at in range(ROWS)]
    df = frame(spark_cluster, {"tokens": pa.array(tokens, pa.list_(pa.int32()))})
    got = [row["prediction"] for row in collected(predict(df, model, batch_size=7), "prediction")]
    want = [model.predict_on_batch(np.array([row]))[0] for row in tokens]
    np.testing.assert_allclose(got, want, atol=1e-6)


@pytest.mark.smoke
def test_a_saved_model_of_plain_tensorflow(spark_cluster: "SparkSession", tmp_path: Path) -> None:
    path = plain_tensorflow(tmp_path)
    df = frame(spark_cluster, {"x": lists(floats(2)), "name": pa.array([f"row {at}" for at in range(ROWS)])})
    scored = predict(df, path, outputs={"twice": ("pair", "array<double>"), "hello": "greeting"})
    assert dict(scored.dtypes)["greeting"] == "string"
    rows = collected(scored, "x", "pair", "greeting")
    assert [row["greeting"] for row in rows] == [f"hello row {at}" for at in range(ROWS)]
    assert all(row["pair"] == [2 * value for value in row["x"]] for row in rows)

    halves = predict(
        df, path, signature="half", inputs="id", outputs={"half": "h", "is_even": "even"}, keep=["id"]
    )
    assert halves.dtypes == [("id", "bigint"), ("h", "float"), ("even", "boolean")]
    assert [tuple(row) for row in collected(halves, "h", "even")] == [
        (at, at / 2, at % 2 == 0) for at in range(ROWS)
    ]

    with pytest.raises(ModelError, match=r"signature='third'; .* has: .*half"):
        predict(df, path, signature="third")


@pytest.mark.full
def test_a_saved_model_of_tf_keras(spark_cluster: "SparkSession", tmp_path: Path) -> None:
    rows = floats(3)
    df = frame(spark_cluster, {"a": rows[:, 0], "b": rows[:, 1], "c": rows[:, 2]})
    scored = predict(df, tf_keras_model(tmp_path), inputs=["a", "b", "c"], outputs="sums")
    got = [row["sums"] for row in collected(scored, "sums")]
    np.testing.assert_allclose(got, np.repeat(rows.sum(axis=1, keepdims=True), 2, axis=1), atol=1e-6)


def test_a_saved_model_of_tensorflow_1_with_a_fixed_number_of_rows(
    spark_cluster: "SparkSession", tmp_path: Path
) -> None:
    rows = floats(3)
    df = frame(spark_cluster, {"x": lists(rows)})
    scored = predict(df, tensorflow_one(tmp_path), signature="sum", tags=("serve", "cpu"))
    got = [row["prediction"] for row in collected(scored, "prediction")]
    np.testing.assert_allclose(got, rows.sum(axis=1), atol=1e-6)


@pytest.mark.full
def test_a_model_with_python_lambdas_needs_the_object_not_the_file(
    spark_cluster: "SparkSession", tmp_path: Path
) -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Lambda(lambda x: x + 1, output_shape=(2,))])
    path = str(tmp_path / "lambda.keras")
    model.save(path)
    df = frame(spark_cluster, {"x": lists(floats(2))})
    with pytest.raises(ModelError, match="cannot be loaded"):
        predict(df, path)
    rows = collected(predict(df, model, inputs="x"), "x", "prediction")
    np.testing.assert_allclose(
        [row["prediction"] for row in rows], [np.add(row["x"], 1) for row in rows], atol=1e-6
    )


def test_a_keras_file_is_described_without_bringing_tensorflow_into_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "model.keras")
    mlp().model.save(path)
    here = describe_path(path, LoadOptions())
    monkeypatch.delitem(sys.modules, "tensorflow")
    monkeypatch.setattr("emberflow._score.describe.describe_path", None)
    assert _describe_locally(path, LoadOptions())[0] == here
    (tmp_path / "broken.keras").write_bytes(b"no zip")
    with pytest.raises(ModelError, match="cannot be loaded"):
        _describe_locally(str(tmp_path / "broken.keras"), LoadOptions())


@pytest.mark.full
def test_an_object_of_tf_keras(spark_cluster: "SparkSession") -> None:
    import tf_keras

    model = tf_keras.Sequential(
        [tf_keras.layers.Input((2,)), tf_keras.layers.Dense(1, kernel_initializer="ones")]
    )
    rows = floats(2)
    scored = predict(
        frame(spark_cluster, {"x": lists(rows)}), model, inputs="x", outputs={"output_0": ("y", "float")}
    )
    np.testing.assert_allclose([row["y"] for row in collected(scored, "y")], rows.sum(axis=1), atol=1e-6)


def test_the_model_is_loaded_once_in_each_process(spark_cluster: "SparkSession", tmp_path: Path) -> None:
    marks = tmp_path / "loads"
    marks.mkdir()

    def load() -> Any:
        import os
        import uuid

        (marks / f"{os.getpid()}-{uuid.uuid4().hex}").touch()
        return lambda x: np.full(len(x), os.getpid())

    df = frame(spark_cluster, {"x": lists(floats(2))}, partitions=8)
    scored = predict(df, load, inputs="x", outputs="pid long")
    pids = {row["pid"] for _ in range(3) for row in scored.collect()}
    loads = [mark.name.split("-")[0] for mark in marks.iterdir()]
    assert sorted(loads) == sorted(str(pid) for pid in pids)


def test_functions_with_dictionaries_and_several_outputs(spark_cluster: "SparkSession") -> None:
    def load() -> Any:
        return lambda arrays: {
            "sum": arrays["a"] + arrays["b"],
            "texts": [str(value) for value in arrays["a"]],
        }

    df = frame(spark_cluster, {"a": np.arange(ROWS), "b": np.arange(ROWS) * 2.0})
    outputs = {"sum": ("total", "double"), "texts": ("text", "string")}
    scored = predict(df, load, inputs={"a": "a", "b": "b"}, outputs=outputs)
    assert [tuple(row) for row in collected(scored, "total", "text")] == [
        (at, at * 3.0, str(at)) for at in range(ROWS)
    ]


@pytest.mark.smoke
def test_streams_are_scored(spark_cluster: "SparkSession", tmp_path: Path) -> None:
    case = mlp()
    df = frame(spark_cluster, case.table)
    df.write.parquet(str(tmp_path / "in"))
    stream = spark_cluster.readStream.schema(df.schema).parquet(str(tmp_path / "in"))
    query = (
        predict(stream, case.model, inputs="x")
        .writeStream.format("memory")
        .queryName("scored_stream")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert max(differences(spark_cluster.table("scored_stream"), case, ["prediction"])) < 1e-6


@pytest.fixture
def large_model(tmp_path: Path) -> tuple[str, Any]:
    """A model of 160 MB, as a SavedModel."""
    x = keras.Input((1,), dtype="int32", name="x")
    table = keras.layers.Embedding(1_000_000, 40)(x)
    model = keras.Model(x, keras.layers.Flatten()(table))
    path = tmp_path / "large"
    model.export(str(path), verbose=False)
    assert sum(file.stat().st_size for file in path.rglob("*")) > 150_000_000
    return str(path), model


@pytest.mark.full
def test_a_model_above_128_mb_on_connect(
    spark_connect: "SparkSession", large_model: tuple[str, Any], tmp_path: Path
) -> None:
    path, model = large_model
    df = frame(spark_connect, {"n": np.arange(ROWS) * 40_000})
    rows = collected(predict(df, path, inputs="n", outputs="vector"), "vector")
    want = model.predict_on_batch(np.arange(ROWS)[:, None] * 40_000)
    np.testing.assert_allclose([row["vector"] for row in rows], want, atol=1e-6)


@pytest.mark.full
def test_every_kind_of_model_on_connect(spark_connect: "SparkSession", tmp_path: Path) -> None:
    case = string_input()
    df = frame(spark_connect, case.table)
    assert max(differences(predict(df, case.model, inputs="text"), case, ["prediction"])) < 1e-6
    case.model.save(str(tmp_path / "text.keras"))
    assert max(differences(predict(df, str(tmp_path / "text.keras")), case, ["prediction"])) < 1e-6
    rows = collected(predict(df, lambda: len_of, inputs="text", outputs="size int"), "text", "size")
    assert all(row["size"] == len(row["text"].encode()) for row in rows)


def len_of(texts: Any) -> Any:
    return np.array([len(text) for text in texts], np.int32)


def test_tensorflow_starts_in_silence_and_other_lines_come_through() -> None:
    program = (
        "import os\n"
        "from emberflow._score import quiet_start\n"
        "with quiet_start._noise_left_out():\n"
        "    os.write(2, b'I0000 00:00:17 cudart_stub.cc:31] Could not find cuda drivers\\nA warning\\n')\n"
        "quiet_start.start_tensorflow()\n"
        "import tensorflow\n"
    )
    env = os.environ | {"CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
    )
    assert done.stderr == "A warning\n"
