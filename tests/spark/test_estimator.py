"""KerasEstimator and KerasModel on real clusters: Spark ML's ways, saving, resume."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import emberflow as ef
from emberflow.ml.validation_rows import split_rows
from tests.spark.keras_models import (
    KillOnce,
    flower_model,
    flower_rows,
    measured_rows,
    normalised_model,
    predictions,
    sequence_model,
    token_rows,
    two_headed_model,
)

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


def elsewhere(path: str, master: str) -> list[list[float]]:
    """Return what a new process with a session of its own predicts with the saved pipeline."""
    command = [sys.executable, "-m", "tests.spark.load_elsewhere", path, master]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: list[list[float]] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def check_pipeline(rows: "DataFrame", path: str, master: str) -> None:
    """Fit with Spark's own stages around ours, judge by Spark's evaluator, save, load elsewhere."""
    from pyspark.ml import Pipeline
    from pyspark.ml.evaluation import MulticlassClassificationEvaluator
    from pyspark.ml.feature import StringIndexer, VectorAssembler

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
    fitted.write().overwrite().save(path)
    assert elsewhere(path, master) == predictions(scored)


@pytest.mark.smoke
def test_pipeline_with_sparks_own_stages_saves_and_loads_elsewhere(
    spark_cluster: "SparkSession", tmp_path: Path
) -> None:
    check_pipeline(flower_rows(spark_cluster), f"file://{tmp_path}/pipeline", "local[1]")


@pytest.mark.full
def test_on_connect_a_pipeline_does_the_same(spark_connect: Any, tmp_path: Path) -> None:
    server = f"sc://{spark_connect.client._builder.endpoint}"
    check_pipeline(flower_rows(spark_connect), f"file://{tmp_path}/pipeline", server)


def tuned(kind: str, rows: "DataFrame", **options: Any) -> Any:
    """Search the better of two numbers of epochs by Spark's own tuning."""
    from pyspark.ml import tuning
    from pyspark.ml.evaluation import MulticlassClassificationEvaluator

    stage = estimator()
    return getattr(tuning, kind)(
        estimator=stage,
        estimatorParamMaps=tuning.ParamGridBuilder().addGrid(stage.epochs, [20, 1]).build(),
        evaluator=MulticlassClassificationEvaluator(metricName="accuracy"),
        seed=1,
        **options,
    ).fit(rows)


@pytest.mark.full
def test_cross_validator_with_parallel_fits_queues_for_slots(
    spark_cluster: "SparkSession", caplog: pytest.LogCaptureFixture
) -> None:
    rows = flower_rows(spark_cluster)
    with caplog.at_level("INFO", logger="emberflow"):
        best = tuned("CrossValidator", rows, numFolds=2, parallelism=2)
    assert any(each.startswith("waits for 2 of 2 task slots; run ") for each in caplog.messages)
    assert best.avgMetrics[0] > best.avgMetrics[1]  # one epoch is too few
    assert isinstance(best.bestModel, ef.KerasModel)
    assert best.transform(rows).filter("prediction = label").count() > 0.8 * rows.count()


@pytest.mark.full
def test_train_validation_split_finds_the_better_param(spark_cluster: "SparkSession") -> None:
    rows = flower_rows(spark_cluster)
    best = tuned("TrainValidationSplit", rows, trainRatio=0.7)
    assert best.validationMetrics[0] > best.validationMetrics[1]
    assert isinstance(best.bestModel, ef.KerasModel)


@pytest.mark.full
def test_cross_validator_on_connect(spark_connect: "SparkSession") -> None:
    best = tuned("CrossValidator", flower_rows(spark_connect), numFolds=2)
    assert best.avgMetrics[0] > best.avgMetrics[1]
    assert isinstance(best.bestModel, ef.KerasModel)


@pytest.mark.smoke
def test_on_connect_fit_transform_save_and_load(spark_connect: "SparkSession", tmp_path: Path) -> None:
    rows = flower_rows(spark_connect)
    model = estimator(epochs=10, validationSplit=0.2).fit(rows)
    assert len(model.history["val_accuracy"]) == 10
    scored = model.transform(rows)
    model.write().overwrite().save(str(tmp_path / "model"))
    again = ef.KerasModel.load(str(tmp_path / "model"))
    assert predictions(again.transform(rows)) == predictions(scored)
    assert again.history == model.history


@pytest.mark.fault
@pytest.mark.parametrize(
    "seed", [1, pytest.param(2, marks=pytest.mark.full), pytest.param(3, marks=pytest.mark.full)]
)
def test_a_killed_worker_costs_a_restart_and_no_difference(
    seed: int, spark_cluster: "SparkSession", tmp_path: Path
) -> None:
    rows = flower_rows(spark_cluster)
    after = 3 + (seed * 5) % 14  # of the 18 steps of 3 epochs
    common: dict[str, Any] = {"epochs": 3, "seed": seed, "checkpointSteps": 2, "model": normalised_model}
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
def test_bytes_are_numbers_from_0_to_255_in_fit_and_transform(spark_cluster: "SparkSession") -> None:
    def build() -> Any:
        import keras

        model = keras.Sequential([keras.layers.Input((2, 1)), keras.layers.Flatten(), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.layers[-1].set_weights([np.array([[1.0], [2.0]]), np.zeros(1)])
        return model

    rows = spark_cluster.createDataFrame(
        [(0, b"\x01\x02", 5.0), (1, b"\xff\x00", 255.0)], "id int, x binary, y double"
    )
    stage = ef.KerasEstimator(model=build, featuresCol="x", labelCol="y", numWorkers=1, verbose=False)
    model = stage.fit(rows)
    assert model.history["loss"] == [0.0]  # what the bytes mean is known to the model already
    assert model.result.metrics[-1].values["progress"] == 1.0
    assert predictions(model.transform(rows)) == [[0, 5.0], [1, 255.0]]


@pytest.mark.full
def test_gradients_as_bfloat16_need_a_transport_that_has_them(spark_cluster: "SparkSession") -> None:
    stage = estimator(transport="collectives", wireDtype="bfloat16")
    with pytest.raises(ef.EmberflowError, match="wire_dtype='bfloat16'"):
        stage.fit(flower_rows(spark_cluster))
    assert "loss" in stage.setTransport("ring").fit(flower_rows(spark_cluster)).history


@pytest.mark.full
def test_on_an_encrypted_cluster_collectives_are_refused_and_tensorboard_is_passed_on(
    spark_cluster: "SparkSession", monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    conf = spark_cluster.sparkContext.getConf().set("spark.network.crypto.enabled", "true")
    monkeypatch.setattr(type(spark_cluster.sparkContext), "getConf", lambda _: conf)
    rows = flower_rows(spark_cluster)
    stage = estimator(numWorkers=2, transport="collectives")
    with pytest.raises(ef.EncryptionError) as caught:
        stage.fit(rows)
    assert "allowUnencrypted=True" in caught.value.fix
    model = stage.setNumWorkers(1).setTransport("auto").setTensorboardDir(str(tmp_path)).fit(rows)
    assert "loss" in model.history
    # Not its URL: one epoch on a busy machine is over before TensorBoard has started (test_tensorboard waits for it).
    assert list(tmp_path.glob("train/events.out.tfevents.*"))  # the chief wrote what TensorBoard shows


def test_several_columns_weights_validation_rows_and_overrides(
    spark_cluster: "SparkSession", tmp_path: Path
) -> None:
    import keras

    rows = measured_rows(spark_cluster)
    stage = ef.KerasEstimator(
        model=two_headed_model,
        featuresCols=["left", "right"],
        labelCols=["value", "sign"],
        weightCol="weight",
        validationIndicatorCol="held_out",
        optimizer=keras.optimizers.Adam(0.05),
        metrics={"value": ["mae"], "sign": ["accuracy"]},
        callbacks=[keras.callbacks.EarlyStopping(patience=50)],
        batchSize=8,
        epochs=20,
        numWorkers=2,
        verbose=False,
    )
    model = stage.fit(rows)
    assert {"loss", "val_loss", "value_mae", "val_sign_accuracy"} <= set(model.history)
    assert isinstance(model.keras().optimizer, keras.optimizers.Adam)  # the model was compiled with another
    assert sum(report.feed["rows"] for report in model.result.reports) == rows.count()
    assert model.plot(str(tmp_path / "curves.png")) == str(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "Total params" in model.summary
    scored = model.transform(rows)
    right = scored.filter("prediction_sign = sign").count()
    assert right >= 0.9 * rows.count()
    far = scored.selectExpr("avg(abs(prediction_value - value))").first()
    assert far is not None
    assert far[0] < 0.3
    assert dict(scored.dtypes)["probability_sign"] == "vector"


def test_each_row_trains_or_validates_also_without_an_indicator(spark_cluster: "SparkSession") -> None:
    marks = [(number, [True, False, None][number % 3]) for number in range(30)]
    rows = spark_cluster.createDataFrame(marks, "x int, held_out boolean")
    stage = estimator(featuresCol="x", labelCol="x", featuresCols=[], validationIndicatorCol="held_out")
    data = split_rows(stage, rows, ["x"])
    validation = sorted(row["x"] for row in data["validation"].collect())
    assert validation == list(range(0, 30, 3))
    train = sorted(row["x"] for row in data["train"].collect())
    assert train == [number for number in range(30) if number % 3]


@pytest.mark.parametrize(("workers", "more"), [(2, "numWorkers=4"), ("auto", 'numWorkers="auto"')])
def test_gpus_that_would_be_idle_are_refused_before_anything_starts(workers: Any, more: str) -> None:
    with pytest.raises(ef.ConfigError, match="gpusPerWorker=2") as caught:
        estimator(numWorkers=workers, gpusPerWorker=2).fit(None)
    assert more in caught.value.fix


def test_params_are_those_of_spark_ml() -> None:
    stage = estimator(epochs=2)
    other = stage.copy({stage.epochs: 5})
    assert (stage.getEpochs(), other.getEpochs()) == (2, 5)
    assert other.model is stage.model
    assert stage.extractParamMap()[stage.batchSize] == 8
    assert stage.setSeed(7).getSeed() == 7
    assert "rows in one step of one worker" in stage.explainParam("batchSize")


def test_wrong_input_is_named_before_anything_starts(spark_cluster: "SparkSession") -> None:
    rows = flower_rows(spark_cluster)
    with pytest.raises(ef.ConfigError, match="without \\['nothing'\\]"):
        estimator(featuresCols=["length", "nothing"]).fit(rows)
    with pytest.raises(ef.ConfigError, match="model=None"):
        estimator(model=None).fit(rows)
    with pytest.raises(ef.DataError, match="'kind' of type string") as caught:
        estimator(labelCol="kind").fit(rows)
    assert 'StringIndexer(inputCol="kind"' in caught.value.fix
    with pytest.raises(ef.ConfigError, match="validationSplit"):
        estimator(validationSplit=1.0)


def test_labels_beyond_the_classes_are_named_before_the_first_step(spark_cluster: "SparkSession") -> None:
    from pyspark.sql import functions as F

    rows = flower_rows(spark_cluster).withColumn("label", F.col("label") + 1)
    with pytest.raises(ef.DataError, match="must be from 0 to 2") as caught:
        estimator().fit(rows)
    assert "Received: 3 in column 'label'" in caught.value.problem
    assert "rows of rank" in caught.value.problem
    assert "Give the last layer 4 units" in caught.value.fix
    assert "Traceback" not in str(caught.value)


@pytest.mark.full
def test_sequences_of_any_length_train_on_two_workers_as_on_one_and_score_as_they_were_trained(
    spark_cluster: "SparkSession", tmp_path: Path
) -> None:
    rows = token_rows(spark_cluster)
    given = {
        "model": sequence_model,
        "featuresCols": [],
        "featuresCol": "tokens",
        "batchSize": 24,
        "epochs": 2,
    }
    two = estimator(**given, padValue=7).fit(rows)
    one = estimator(**given, padValue=7, numWorkers=1).fit(rows)
    assert two.trained.pad_to == {"tokens": 5}
    for mine, other in zip(two.keras().get_weights(), one.keras().get_weights(), strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-5)
    two.save(str(tmp_path / "model"))
    again = ef.KerasModel.load(str(tmp_path / "model"))
    tokens = [list(range(1, number % 5 + 2)) for number in range(24)]
    padded = np.array([row + [7] * (5 - len(row)) for row in tokens])
    expected = two.keras().predict(padded, verbose=0)[:, 0]
    found = [prediction for _, prediction in predictions(again.transform(rows))]
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.full
def test_a_loss_that_turns_nan_names_the_step_and_the_column(
    spark_cluster: "SparkSession", capfd: pytest.CaptureFixture[str]
) -> None:
    from pyspark.sql import functions as F

    bad = F.when(F.col("id") == 5, F.lit(float("nan"))).otherwise(F.col("width"))
    rows = flower_rows(spark_cluster).withColumn("width", bad)
    # Not the model with a `relu`: on some processors TensorFlow makes a zero of NaN there, and the loss stays finite.
    estimator(model=normalised_model, epochs=1, verbose=True).fit(rows)
    shown = capfd.readouterr().err
    assert re.search(r"\[chief 0\] The loss is not a finite number from epoch 1, step \d+ on", shown)
    assert re.search(r"Column 'width' has NaN or infinite values in 1 of the \d+ rows of rank [01]", shown)


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
