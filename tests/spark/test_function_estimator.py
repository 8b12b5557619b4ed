"""FunctionEstimator and SavedModelTransformer on real clusters: Spark ML's ways with any function."""

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import emberflow as ef
from tests.spark.keras_models import flower_model, flower_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.timeout(400)]
COLUMNS = ["length", "width", "label"]


def train(ctx: Any, folder: str, epochs: int = 12) -> str | None:
    """Train a Keras model on all workers; each fit exports to a path of its own."""
    model = ctx.distribute(flower_model())
    rows = ctx.dataset(features="both", label="label", batch_size=8)
    history = model.fit(rows, epochs=epochs, verbose=0)
    ctx.report(step=epochs, loss=history.history["loss"][-1], rows=ctx.rows())
    path: str | None = ctx.export(model, f"{folder}/{uuid.uuid4()}")
    return path


def assembled() -> Any:
    from pyspark.ml.feature import VectorAssembler

    return VectorAssembler(inputCols=["length", "width"], outputCol="both")


def estimator(folder: Path, **params: Any) -> ef.FunctionEstimator:
    given = {
        "args": {"folder": f"file://{folder}"},
        "inputCols": ["both", "label"],
        "inputs": "both",
        "outputs": "scores",
        "numWorkers": 2,
        "verbose": False,
    }
    return ef.FunctionEstimator(train, **(given | params))


def scores_of(scored: "DataFrame") -> Any:
    rows = scored.select("id", "scores").collect()
    return np.array([row["scores"] for row in sorted(rows, key=lambda row: row["id"])])


def check_pipeline(rows: "DataFrame", folder: Path) -> None:
    """Fit with Spark's own stage before ours; compare with one process; save, load, and score again."""
    from pyspark.ml import Pipeline, PipelineModel

    import tensorflow as tf

    fitted = Pipeline(stages=[assembled(), estimator(folder)]).fit(rows)
    stage = fitted.stages[1]
    assert isinstance(stage, ef.SavedModelTransformer)
    assert sum(metric.values["rows"] for metric in stage.result.metrics) == rows.count()
    scored = fitted.transform(rows)
    assert {*rows.columns, "both", "scores"} == set(scored.columns)
    scores = scores_of(scored)
    given = sorted(rows.select("id", *COLUMNS).collect(), key=lambda row: row["id"])
    assert np.mean([score.argmax() == row["label"] for score, row in zip(scores, given, strict=True)]) > 0.9
    alone = tf.saved_model.load(stage.getPath().removeprefix("file://"))
    expected = alone.serve(np.array([[row["length"], row["width"]] for row in given], np.float32))
    np.testing.assert_allclose(scores, expected, atol=1e-5)

    path = f"file://{folder}/pipeline"
    fitted.write().overwrite().save(path)
    for file in sorted(Path(stage.getPath().removeprefix("file://")).rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()  # the saved pipeline has its own copy
    np.testing.assert_array_equal(scores_of(PipelineModel.load(path).transform(rows)), scores)


@pytest.mark.smoke
def test_a_function_trains_in_a_pipeline_that_saves_and_loads(
    spark_cluster: "SparkSession", tmp_path: Path
) -> None:
    check_pipeline(flower_rows(spark_cluster), tmp_path)


@pytest.mark.full
def test_on_connect_a_pipeline_does_the_same(spark_connect: Any, tmp_path: Path) -> None:
    check_pipeline(flower_rows(spark_connect), tmp_path)


def train_alone(ctx: Any, folder: str, steps: int) -> str | None:
    """Fit a line with TensorFlow alone, and export it with a signature of its own."""
    import tensorflow as tf

    weights = tf.Variable(tf.zeros(2))
    rows = next(iter(ctx.dataset(columns=["length", "width", "label"], batch_size=10_000)))
    x = tf.stack([rows["length"], rows["width"]], axis=1)
    for _ in range(steps):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.linalg.matvec(x, weights) - tf.cast(rows["label"], tf.float32)) ** 2)
        weights.assign_sub(0.05 * tape.gradient(loss, weights))
    number = tf.TensorSpec([None], tf.float32)
    module = tf.Module()
    module.weights = weights
    module.score = tf.function(
        lambda length, width: {"kind": length * weights[0] + width * weights[1]},
        input_signature=[number, number],
    )
    path = str(Path(folder) / str(uuid.uuid4()))
    tf.saved_model.save(module, path, signatures={"score": module.score})
    return path


def lone(folder: Path, **params: Any) -> ef.FunctionEstimator:
    given = {
        "args": {"folder": str(folder), "steps": 100},
        "inputCols": COLUMNS,
        "outputs": {"kind": "prediction"},
        "signature": "score",
        "numWorkers": 1,
        "verbose": False,
    }
    return ef.FunctionEstimator(train_alone, **(given | params))


@pytest.mark.full
def test_spark_s_tuning_sets_the_arguments_of_a_plain_tensorflow_function(
    spark_cluster: "SparkSession", tmp_path: Path
) -> None:
    from pyspark.ml.evaluation import RegressionEvaluator
    from pyspark.ml.tuning import ParamGridBuilder, TrainValidationSplit

    stage = lone(tmp_path)
    choices = [{"folder": str(tmp_path), "steps": steps} for steps in (100, 1)]
    best = TrainValidationSplit(
        estimator=stage,
        estimatorParamMaps=ParamGridBuilder().addGrid(stage.args, choices).build(),
        evaluator=RegressionEvaluator(metricName="mae"),
        parallelism=2,
        seed=1,
    ).fit(flower_rows(spark_cluster))
    assert best.validationMetrics[0] < best.validationMetrics[1] / 2  # one step is too few
    assert isinstance(best.bestModel, ef.SavedModelTransformer)


@pytest.mark.full
def test_a_function_without_a_path_fails_with_what_to_return(
    spark_cluster: "SparkSession", tmp_path: Path
) -> None:
    with pytest.raises(ef.ModelError, match="must return the path of the SavedModel") as caught:
        lone(tmp_path, args={}).setFn(lambda ctx: ctx.rows()).fit(flower_rows(spark_cluster))
    assert "Received: 96 (int)" in caught.value.problem


@pytest.mark.full
def test_two_fits_into_one_path_are_not_mistaken_for_each_other(
    spark_cluster: "SparkSession", tmp_path: Path
) -> None:
    def export_again(ctx: Any, slope: float) -> Any:
        import tensorflow as tf

        module = tf.Module()
        module.slope = tf.Variable(slope)
        module.score = tf.function(
            lambda length: {"kind": length * module.slope},
            input_signature=[tf.TensorSpec([None], tf.float32)],
        )
        module.score.get_concrete_function()
        return ctx.export(module, f"{tmp_path}/model")

    rows = flower_rows(spark_cluster)
    stage = lone(
        tmp_path, inputCols=["length"], signature="serving_default", outputs=None, args={"slope": 2.0}
    )
    stage.setFn(export_again)
    first, second = stage.fit(rows), stage.fit(rows, {stage.args: {"slope": 3.0}})
    scored = second.transform(rows).selectExpr("max(abs(prediction - 3 * length))").first()
    assert scored is not None
    assert scored[0] < 1e-5
    with pytest.raises(ef.ModelError, match="which was replaced since"):
        first.transform(rows)


def test_wrong_columns_are_named_before_anything_starts(
    spark_cluster: "SparkSession", tmp_path: Path
) -> None:
    rows = flower_rows(spark_cluster)
    with pytest.raises(ef.ConfigError, match=r"without \['lenght'\]") as caught:
        lone(tmp_path, inputCols=["lenght"]).fit(rows)
    assert "Did you mean 'length'? Set inputCols" in caught.value.fix
    with pytest.raises(ef.ConfigError, match="Pass numPs=1"):
        lone(tmp_path, strategy="periodic").fit(rows)
    with pytest.raises(ef.DataError, match="of type string"):
        lone(tmp_path, validationIndicatorCol="kind").fit(rows)
