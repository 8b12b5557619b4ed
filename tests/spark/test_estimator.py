"""KerasEstimator and KerasModel on real clusters: Spark ML's ways, saving, resume."""

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import emberflow as ef
from tests.spark.keras_models import KillOnce, flower_model, flower_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.timeout(400)]


def estimator(**params: Any) -> ef.KerasEstimator:
    given = {
        "model": flower_model,
        "featuresCols": ["length", "width"],
        "batchSize": 8,
        "numWorkers": 2,
        "verbose": False,
    }
    return ef.KerasEstimator(**(given | params))


def predictions(scored: "DataFrame") -> list[tuple[int, float]]:
    return sorted((row["id"], row["prediction"]) for row in scored.select("id", "prediction").collect())


def test_pipeline_with_sparks_own_stages_saves_and_loads_elsewhere(
    spark_cluster: "SparkSession", tmp_path: Path
) -> None:
    from pyspark.ml import Pipeline, PipelineModel
    from pyspark.ml.evaluation import MulticlassClassificationEvaluator
    from pyspark.ml.feature import StringIndexer, VectorAssembler

    rows = flower_rows(spark_cluster)
    stages = [
        StringIndexer(inputCol="kind", outputCol="index"),
        VectorAssembler(inputCols=["length", "width"], outputCol="both"),
        ef.KerasEstimator(
            model=flower_model,
            featuresCol="both",
            labelCol="index",
            batchSize=8,
            epochs=12,
            numWorkers=2,
            verbose=False,
        ),
    ]
    fitted = Pipeline(stages=stages).fit(rows)
    scored = fitted.transform(rows)
    accuracy = MulticlassClassificationEvaluator(labelCol="index", metricName="accuracy").evaluate(scored)
    assert accuracy > 0.9
    assert {"kind", "both", "rawPrediction", "probability", "prediction"} <= set(scored.columns)

    path = f"file://{tmp_path}/pipeline"
    fitted.write().overwrite().save(path)
    assert predictions(PipelineModel.load(path).transform(rows)) == predictions(scored)

    keras_stage = str(next((tmp_path / "pipeline" / "stages").glob("2_*")))
    code = (
        "import sys, numpy as np, emberflow as ef\n"
        "model = ef.KerasModel.load(sys.argv[1])\n"
        "print(model.keras().predict(np.array([[0.1, 0.0], [2.1, 4.0]]), verbose=0).argmax(1).tolist())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, keras_stage],
        capture_output=True,
        text=True,
        check=True,
        env=dict(os.environ),
    )
    expected = (
        fitted.stages[2].keras().predict(np.array([[0.1, 0.0], [2.1, 4.0]]), verbose=0).argmax(1).tolist()
    )
    assert done.stdout.strip().splitlines()[-1] == str(expected)


@pytest.mark.full
def test_cross_validator_with_parallel_fits_queues_for_slots(spark_cluster: "SparkSession") -> None:
    from pyspark.ml.evaluation import MulticlassClassificationEvaluator
    from pyspark.ml.tuning import CrossValidator, ParamGridBuilder

    stage = estimator(epochs=6)
    grid = ParamGridBuilder().addGrid(stage.batchSize, [8, 48]).build()
    evaluator = MulticlassClassificationEvaluator(metricName="accuracy")
    best = CrossValidator(
        estimator=stage, estimatorParamMaps=grid, evaluator=evaluator, numFolds=2, parallelism=2, seed=1
    ).fit(flower_rows(spark_cluster))
    assert len(best.avgMetrics) == 2
    assert isinstance(best.bestModel, ef.KerasModel)


def test_on_connect_fit_transform_save_and_load(spark_connect: "SparkSession", tmp_path: Path) -> None:
    rows = flower_rows(spark_connect)
    model = estimator(epochs=10, validationSplit=0.2).fit(rows)
    assert len(model.history["val_accuracy"]) == 10
    scored = model.transform(rows)
    model.write().overwrite().save(str(tmp_path / "model"))
    again = ef.KerasModel.load(str(tmp_path / "model"))
    assert predictions(again.transform(rows)) == predictions(scored)
    assert again.history == model.history


@pytest.mark.parametrize(
    "seed", [1, pytest.param(2, marks=pytest.mark.full), pytest.param(3, marks=pytest.mark.full)]
)
def test_a_killed_worker_costs_a_restart_and_no_difference(
    seed: int, spark_cluster: "SparkSession", tmp_path: Path
) -> None:
    rows = flower_rows(spark_cluster)
    after = 3 + (seed * 5) % 14  # of the 18 steps of 3 epochs
    common: dict[str, Any] = {"epochs": 3, "seed": seed, "checkpointSteps": 2}
    smooth = estimator(**common).fit(rows)
    broken = estimator(
        **common,
        callbacks=[KillOnce(tmp_path / "killed", rank=seed % 2, after=after)()],
        checkpointDir=str(tmp_path / "checkpoints"),
        maxRestarts=1,
    ).fit(rows)
    assert (tmp_path / "killed").exists()
    assert broken.result.attempts == 2
    for one, other in zip(smooth.keras().get_weights(), broken.keras().get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.full
def test_mnist_in_three_epochs(spark_cluster: "SparkSession", mnist: Any) -> None:
    import pyarrow as pa

    def frame(images: Any, labels: Any) -> "DataFrame":
        table = pa.table(
            {
                "image": pa.array([each.tobytes() for each in images], pa.binary()),
                "label": labels.astype("int64"),
            }
        )
        return spark_cluster.createDataFrame(table)

    def build() -> Any:
        import keras

        layers = keras.layers
        model = keras.Sequential(
            [
                layers.Input((28, 28, 1)),
                layers.Rescaling(1 / 255),
                layers.Conv2D(16, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Conv2D(32, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(64, activation="relu"),
                layers.Dense(10, activation="softmax"),
            ]
        )
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        return model

    train = frame(mnist.train_images, mnist.train_labels).repartition(4)
    model = ef.KerasEstimator(
        model=build,
        featuresCol="image",
        labelCol="label",
        batchSize=64,
        epochs=3,
        numWorkers=2,
        verbose=False,
    ).fit(train)
    test = frame(mnist.test_images, mnist.test_labels)
    right = model.transform(test).filter("prediction = label").count()
    assert right / len(mnist.test_labels) >= 0.98


def test_wrong_input_is_named_before_anything_starts(spark_cluster: "SparkSession") -> None:
    rows = flower_rows(spark_cluster)
    with pytest.raises(ef.ConfigError, match="without \\['nothing'\\]"):
        estimator(featuresCols=["length", "nothing"]).fit(rows)
    with pytest.raises(ef.ConfigError, match="model=None"):
        estimator(model=None).fit(rows)
    with pytest.raises(ef.ConfigError, match="no Param"):
        ef.KerasEstimator(model=flower_model, epoch=3)
    with pytest.raises(ef.ConfigError, match="validationSplit"):
        estimator(validationSplit=1.0)


def test_code_is_loaded_only_when_trusted(tmp_path: Path) -> None:
    stage = estimator(epochs=2)
    stage.write().save(str(tmp_path / "stage"))
    with pytest.raises(ef.ConfigError, match="trusted=False"):
        ef.KerasEstimator.load(str(tmp_path / "stage"))
    again = ef.KerasEstimator.load(str(tmp_path / "stage"), trusted=True)
    assert (again.uid, again.getEpochs(), again.getBatchSize()) == (stage.uid, 2, 8)
    assert again.model().count_params() == flower_model().count_params()
    with pytest.raises(ef.StorageError, match="must not exist"):
        stage.write().save(str(tmp_path / "stage"))
