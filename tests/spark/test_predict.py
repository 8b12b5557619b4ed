"""Scoring on Spark without TensorFlow: what is kept, what is refused, where models and GPUs are."""

import decimal
import itertools
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from emberflow._driver.row_routing import quoted
from emberflow.errors import ClusterError, ConfigError, ModelError
from emberflow.predict import predict
from tests.unit.test_score_saved_model import MODEL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def load_sum() -> Any:
    return lambda x: x.sum(axis=1)


def numbers(spark: "SparkSession", rows: int = 10, partitions: int = 2) -> "DataFrame":
    return spark.range(0, rows, 1, partitions).selectExpr("id", "array(double(id), 1D) AS x")


ALL_TYPES = (
    "id",
    "array(double(id), 2D) AS x",
    "unhex(concat('00FF', lpad(hex(id), 4, '0'))) AS bin",
    "map('a', id, 'b', null) AS m",
    "named_struct('p', id, 'q', array(named_struct('r', string(id)))) AS s",
    "timestamp_micros(id * 1000001) AS ts",
    "timestamp_ntz'2020-02-29 01:02:03.000004' AS tn",
    "cast(id as decimal(38, 9)) AS d",
    "make_dt_interval(1, 2, 3, id) AS i",
    "date_add(date'1600-01-01', int(id)) AS day",
    "float('nan') AS nan",
    "string(null) AS nothing",
    "if(id % 2 = 0, null, id) AS holes",
    "id AS `odd ``name.x`",
)


@pytest.mark.smoke
def test_kept_columns_are_unchanged_bit_by_bit(spark_cluster: "SparkSession") -> None:
    df = spark_cluster.range(0, 50, 1, 3).selectExpr(*ALL_TYPES)
    scored = predict(df, load_sum, inputs="x", outputs="total double", batch_size=7)
    assert scored.schema[:-1] == df.schema
    kept = scored.drop("total")
    hashed = ", ".join(quoted(name) for name in df.columns if name != "m")
    hashes = [frame.selectExpr(f"hash({hashed})", "to_json(struct(m))") for frame in (df, kept)]
    before, after = (sorted(map(tuple, frame.collect())) for frame in hashes)
    assert after == before
    assert [bytes(row["bin"]) for row in kept.sort("id").collect()] == [
        bytes([0, 255, at >> 8, at & 255]) for at in range(50)
    ]
    assert kept.sort("id").first()["d"] == decimal.Decimal(0)


def test_vectors_are_read_and_kept(spark_cluster: "SparkSession") -> None:
    from pyspark.ml.linalg import Vectors

    rows = [(0, Vectors.dense([1.0, 2.0])), (1, Vectors.sparse(2, [1], [5.0]))]
    df = spark_cluster.createDataFrame(rows, ["id", "v"])
    scored = predict(df, load_sum, inputs="v", outputs="total double").sort("id").collect()
    assert [(row["id"], row["v"], row["total"]) for row in scored] == [(*rows[0], 3.0), (*rows[1], 5.0)]


@pytest.mark.parametrize("rows", [0, 1])
def test_no_row_and_one_row(spark_cluster: "SparkSession", rows: int) -> None:
    scored = predict(numbers(spark_cluster, rows), load_sum, inputs="x", outputs="total double")
    assert [tuple(row) for row in scored.collect()] == [(0, [0.0, 1.0], 1.0)][:rows]


def test_batches_of_sparks_and_of_the_model_do_not_matter(spark_cluster: "SparkSession") -> None:
    df = numbers(spark_cluster, 100)
    for arrow_rows, batch_size in ((1, 10), (7, 3), (50, 50), (10000, 1024), (3, 1)):
        spark_cluster.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", arrow_rows)
        try:
            scored = predict(df, load_sum, inputs="x", outputs="total double", batch_size=batch_size)
            got = sorted((row["id"], row["total"]) for row in scored.collect())
        finally:
            spark_cluster.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
        assert got == [(at, at + 1.0) for at in range(100)]


def test_only_what_is_kept_or_scored_travels(spark_cluster: "SparkSession") -> None:
    df = numbers(spark_cluster).selectExpr("*", "raise_error('read') AS trap")
    scored = predict(df, load_sum, inputs="x", outputs="total double", keep=["id"])
    assert scored.columns == ["id", "total"]
    assert scored.count() == 10


def test_types_that_spark_cannot_send_must_stay_behind(spark_cluster: "SparkSession") -> None:
    df = numbers(spark_cluster).selectExpr("*", "interval 1 month AS later")
    with pytest.raises(ConfigError, match="'later' of type interval month"):
        predict(df, load_sum, inputs="x", outputs="total double")
    assert predict(df, load_sum, inputs="x", outputs="total double", keep=["id"]).count() == 10


@pytest.mark.fault
def test_bad_rows(spark_cluster: "SparkSession") -> None:
    df = numbers(spark_cluster, 6).selectExpr("id", "if(id = 3, null, x) AS x")
    nulls = predict(df, load_sum, inputs="x", outputs="total double", errors="null").sort("id").collect()
    assert [row["total"] for row in nulls] == [1.0, 2.0, 3.0, None, 5.0, 6.0]
    kept = predict(df, load_sum, inputs="x", outputs="t double", errors="keep", error_column="why")
    reasons = {row["id"]: row["why"] for row in kept.collect() if row["why"]}
    assert reasons == {3: "Column 'x' must hold float64 of shape (any,). Received: null."}
    with pytest.raises(
        Exception, match=r"DataError: Column 'x' must hold float64 of shape \(any,\)\. Received: null"
    ):
        predict(df, load_sum, inputs="x", outputs="total double").collect()


@pytest.fixture
def saved_model(tmp_path: Path) -> str:
    """A SavedModel's signatures and nothing else: float32 (28, 28) to a and b."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "saved_model.pb").write_bytes(MODEL)
    return str(tmp_path / "model")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"inputs": "nowhere"}, "Received: 'nowhere'"),
        ({}, "Each input of the model must have a column. Inputs: x (float32 of shape (28, 28))"),
        (
            {"inputs": "pixels", "outputs": {"c": "c"}},
            "Outputs: a (string of shape (any,)), b (int64 of shape ())",
        ),
        ({"inputs": "pixels", "outputs": {"b": "ID"}}, "'ID', which exists"),
        ({"inputs": "pixels", "outputs": {"a": "same", "b": "same"}}, "'same', which exists"),
        ({"inputs": "pixels", "errors": "keep", "error_column": "pixels"}, "'pixels', which exists"),
        ({"inputs": "pixels", "outputs": {"b": ("n", "string")}}, "Received: string"),
        ({"inputs": "pixels", "keep": ["idd"]}, "Received: idd"),
        ({"inputs": "pixels", "batch_size": 0}, "batch_size=0"),
        ({"inputs": "pixels", "errors": "ignore"}, "errors='ignore'"),
        ({"inputs": "text"}, "Column 'text' must have a type"),
        ({"inputs": "pixels", "gpus": -1}, "gpus=-1"),
    ],
)
def test_mistakes_are_errors_of_the_call(
    spark_cluster: "SparkSession", saved_model: str, options: dict[str, Any], words: str
) -> None:
    df = spark_cluster.range(1).selectExpr("id", "array(1F) AS pixels", "'a' AS text")
    jobs = spark_cluster.sparkContext.statusTracker().getJobIdsForGroup(None)
    with pytest.raises(ConfigError) as caught:
        predict(df, saved_model, **options)
    assert words in str(caught.value)
    assert spark_cluster.sparkContext.statusTracker().getJobIdsForGroup(None) == jobs


def test_models_that_are_not_there_or_not_models(spark_cluster: "SparkSession", saved_model: str) -> None:
    df = numbers(spark_cluster)
    with pytest.raises(ModelError, match=r"signature='train'; .* has: serving_default"):
        predict(df, saved_model, signature="train")
    with pytest.raises(ModelError, match=r"tags=\('gpu',\)"):
        predict(df, saved_model, tags=["gpu"])
    with pytest.raises(ModelError, match="There must be a model at the path"):
        predict(df, "/nowhere/at/all")
    with pytest.raises(ConfigError, match="`model` must be a path, a Keras model, or a function"):
        predict(df, 7)
    with pytest.raises(ConfigError, match="declared with their types"):
        predict(df, load_sum, inputs="x")


def test_columns_of_one_name_are_refused(spark_cluster: "SparkSession") -> None:
    df = numbers(spark_cluster).selectExpr("x", "id AS X")
    with pytest.raises(ConfigError, match="more than once"):
        predict(df, load_sum, inputs="x", outputs="total double")


def test_no_gpus_in_a_session_without_any(spark_cluster: "SparkSession") -> None:
    with pytest.raises(ClusterError, match="manages no GPUs"):
        predict(numbers(spark_cluster), load_sum, inputs="x", outputs="total double", gpus=1)


def load_look() -> Any:
    """Say which GPUs the model was loaded with, which it sees in the call, and when that was."""
    loaded_with = os.environ["CUDA_VISIBLE_DEVICES"]

    def look(ids: Any) -> Any:
        started = time.monotonic()
        while time.monotonic() < started + 0.3:  # long enough that tasks overlap
            np.linalg.norm(np.random.default_rng(0).random((100, 100)))
        rows = len(ids)
        return {
            "loaded": [loaded_with] * rows,
            "seen": [os.environ["CUDA_VISIBLE_DEVICES"]] * rows,
            "started": [started] * rows,
            "ended": [time.monotonic()] * rows,
        }

    return look


LOOKS = "loaded string, seen string, started double, ended double"


@pytest.mark.full  # a cluster of its own
def test_tasks_hold_their_gpus_alone_also_in_processes_that_are_used_again(
    spark_gpus: "SparkSession",
) -> None:
    df = spark_gpus.range(0, 24, 1, 24)
    held: dict[str, list[tuple[float, float]]] = {}
    for _ in range(2):
        for row in predict(df, load_look, inputs={"ids": "id"}, outputs=LOOKS, gpus=1).collect():
            assert row["loaded"] == row["seen"]
            held.setdefault(row["seen"], []).append((row["started"], row["ended"]))
    assert set(held) == {"0", "1", "2", "3"}
    for times in held.values():
        times.sort()
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(times))


@pytest.mark.full
def test_tasks_without_gpus_see_none(spark_gpus: "SparkSession") -> None:
    rows = predict(spark_gpus.range(0, 8, 1, 8), load_look, inputs={"ids": "id"}, outputs=LOOKS).collect()
    assert {row["seen"] for row in rows} == {""}
