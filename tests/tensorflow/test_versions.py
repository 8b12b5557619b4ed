"""Published versions: read by TensorFlow and by KerasModel, and picked up by streams without a restart."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
from pyspark.errors import StreamingQueryException

import emberflow as ef
import tensorflow as tf
from emberflow.ml.model import KerasModel
from emberflow.ml.model_outputs import ModelOutput
from emberflow.ml.training import Trained, file_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def constant_model(value: float, outputs: int = 1) -> KerasModel:
    """Return a model of two features whose prediction is always this value."""
    layer = keras.layers.Dense(
        outputs, kernel_initializer="zeros", bias_initializer=keras.initializers.Constant(value)
    )
    model = keras.Sequential([keras.Input((2,)), layer])
    output = ModelOutput(output="output_0", kind="value", is_probability=False)
    return KerasModel(
        trained=Trained(keras_file=file_of(model), history={"loss": [value]}, outputs=(output,))
    )


def test_a_version_is_read_by_tensorflow_and_by_keras_model(tmp_path: Path) -> None:
    models = str(tmp_path / "models")
    assert [constant_model(value).publish(models) for value in (1.5, 2.5)] == [1, 2]
    served = tf.saved_model.load(f"{models}/2").signatures["serving_default"]
    (answer,) = served(tf.zeros([3, 2])).values()
    assert np.asarray(answer).ravel().tolist() == [2.5] * 3
    assert KerasModel.load(f"{models}/1").history == {"loss": [1.5]}
    assert KerasModel.load(models).history == {"loss": [2.5]}


@pytest.mark.full
def test_rows_are_scored_with_the_newest_version(tmp_path: Path, spark_cluster: "SparkSession") -> None:
    models = str(tmp_path / "models")
    for value in (1.5, 2.5):
        constant_model(value).publish(models)
    df = spark_cluster.createDataFrame([([0.0, 1.0],)], "features array<float>")
    for scored in (KerasModel.load(models).transform(df), ef.predict(df, models, inputs="features")):
        assert np.ravel(scored.first()["prediction"]).tolist() == [2.5]  # type: ignore[index]


def test_versions_are_kept_as_many_as_asked_for(tmp_path: Path) -> None:
    model = constant_model(1)
    for _ in range(4):
        model.publish(str(tmp_path), keepVersions=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3", "4"]
    with pytest.raises(ef.ConfigError, match="keepVersions=1"):
        model.publish(str(tmp_path), keepVersions=1)


class Stream:
    """A stream of files into a table in memory."""

    def __init__(
        self, spark: "SparkSession", folder: Path, name: str, score: "Callable[[DataFrame], DataFrame]"
    ):
        self._spark, self._folder, self._name = spark, folder / name, name
        self._folder.mkdir()
        rows = spark.readStream.schema("number int, features array<float>").json(str(self._folder))
        self.query = score(rows).writeStream.format("memory").queryName(name).start()

    def predictions(self, number: int) -> set[float]:
        """Bring rows, and return what they were scored with."""
        aside = self._folder / f".{number}"
        aside.write_text(f'{{"number": {number}, "features": [0.0, 1.0]}}\n' * 5)
        aside.rename(self._folder / f"{number}.json")
        self.query.processAllAvailable()
        rows = self._spark.table(self._name).filter(f"number = {number}").collect()
        assert len(rows) == 5
        return {float(np.ravel(row["prediction"])[0]) for row in rows}


def write_half(models: Path, number: int) -> None:
    """Leave what a publisher without rename leaves when it is killed: everything but the last file."""
    (models / str(number) / "variables").mkdir(parents=True)
    (models / str(number) / "variables" / "variables.index").write_text("half")


@pytest.mark.parametrize("kind", ["predict", pytest.param("transform", marks=pytest.mark.full)])
def test_a_stream_is_scored_with_each_new_version(
    kind: str, spark_cluster: "SparkSession", tmp_path: Path
) -> None:
    models = tmp_path / "models"
    constant_model(1.5).publish(str(models))
    if kind == "predict":
        score: Any = lambda rows: ef.predict(rows, models, inputs="features")  # noqa: E731
    else:
        score = KerasModel.load(str(models)).transform
    stream = Stream(spark_cluster, tmp_path, f"scored_by_{kind}", score)
    try:
        assert stream.predictions(0) == {1.5}
        write_half(models, 2)
        assert stream.predictions(1) == {1.5}
        assert constant_model(3.5).publish(str(models)) == 3
        assert stream.predictions(2) == {3.5}
        assert stream.predictions(3) == {3.5}
    finally:
        stream.query.stop()


@pytest.mark.full
def test_a_version_with_other_outputs_ends_the_stream(spark_cluster: "SparkSession", tmp_path: Path) -> None:
    models = str(tmp_path / "models")
    constant_model(1.5).publish(models)
    stream = Stream(
        spark_cluster, tmp_path, "scored_by_others", lambda rows: ef.predict(rows, models, inputs="features")
    )
    try:
        assert stream.predictions(0) == {1.5}
        constant_model(2.5, outputs=3).publish(models)
        with pytest.raises(
            StreamingQueryException, match="must have the inputs and outputs of the one before"
        ):
            stream.predictions(1)
    finally:
        stream.query.stop()


def test_a_stream_needs_a_version_to_begin_with(spark_cluster: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    write_half(tmp_path / "models", 1)
    rows = spark_cluster.readStream.schema("features array<float>").json(str(tmp_path))
    with pytest.raises(ef.ModelError, match="must be a model at the path"):
        ef.predict(rows, str(tmp_path / "models"), inputs="features")
    with pytest.raises(ef.StorageError, match="must hold a saved"):
        KerasModel.load(str(tmp_path / "models"))
