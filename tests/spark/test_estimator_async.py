"""KerasEstimator with strategies in which each worker goes at its own pace."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import emberflow as ef
from tests.spark.watching import kill_node
from tests.tensorflow.digits_rows import digit_model, digit_rows, digits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.timeout(400)]

EPOCHS = 15
ASYNCHRONOUS = ("parameter_server", "periodic")


def estimator(strategy: str, **params: Any) -> ef.KerasEstimator:
    given: dict[str, Any] = {
        "model": digit_model,
        "featuresCol": "image",
        "batchSize": 16,
        "epochs": EPOCHS,
        "numWorkers": 2,
        "strategy": strategy,
        "syncInterval": 5,
        "combiner": "mean",
        "verbose": False,
    }
    return ef.KerasEstimator(**(given | params))


def accuracy_of(model: ef.KerasModel) -> float:
    _, _, images, labels = digits()
    return float((model.keras().predict(images, verbose=0).argmax(1) == labels).mean())


def kill_once(marker: Path, node: str, after: int) -> Any:
    """Return a callback that kills a node of its own run, once, after so many of the chief's batches."""
    import keras

    class Kill(keras.callbacks.Callback):  # type: ignore[misc]
        seen = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            import os

            self.seen += os.environ["EMBERFLOW_NODE"] == "chief 0"
            if self.seen == after and not marker.exists():
                marker.touch()
                kill_node(node)

    return Kill()


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param(ASYNCHRONOUS[0], marks=pytest.mark.full),
        pytest.param(ASYNCHRONOUS[1], marks=pytest.mark.smoke),
    ],
)
def test_digits_with_validation(spark_gpus: "SparkSession", strategy: str) -> None:
    model = estimator(strategy, validationSplit=0.1).fit(digit_rows(spark_gpus))
    accuracy = accuracy_of(model)
    print(f"{strategy}: {accuracy:.4f} in {model.result.seconds:.1f} s")
    assert accuracy >= 0.97
    assert set(model.history) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert len(model.history["val_loss"]) == EPOCHS
    assert model.history["val_accuracy"][-1] >= 0.9
    assert [report.role for report in model.result.reports] == ["chief", "worker", "ps"]


@pytest.mark.fault
@pytest.mark.full
@pytest.mark.parametrize("strategy", ASYNCHRONOUS)
def test_a_killed_server_costs_a_restart_from_the_checkpoint(
    spark_gpus: "SparkSession", tmp_path: Path, strategy: str
) -> None:
    model = estimator(
        strategy,
        callbacks=[kill_once(tmp_path / "killed", "ps 2", after=200)],
        checkpointDir=str(tmp_path / "checkpoints"),
        checkpointSteps=10,
        maxRestarts=1,
    ).fit(digit_rows(spark_gpus))
    assert (tmp_path / "killed").exists()
    assert model.result.attempts == 2
    assert len(model.history["loss"]) == EPOCHS  # each epoch once, those of the first attempt too
    assert model.history["loss"][-1] < model.history["loss"][0] / 4
    assert accuracy_of(model) >= 0.96
    steps = sorted(int(path.name[5:]) for path in (tmp_path / "checkpoints").glob("attempt-00001-*/step-*"))
    assert steps[0] > 200 - 30  # it went on where the first attempt stood


@pytest.mark.fault
@pytest.mark.full
def test_other_rows_than_those_of_the_checkpoint_are_refused(
    spark_gpus: "SparkSession", tmp_path: Path
) -> None:
    rows = digit_rows(spark_gpus).coalesce(1).sortWithinPartitions("id")  # the same order in every run
    folder = str(tmp_path / "checkpoints")
    estimator("periodic", epochs=1, checkpointDir=folder).fit(rows)
    changed = rows.withColumn("label", (rows["label"] + 1) % 10)
    with pytest.raises(ef.DataError, match="The rows must be the same as when the position was recorded"):
        estimator("periodic", epochs=2, checkpointDir=folder).fit(changed)
    assert len(estimator("periodic", epochs=2, checkpointDir=folder).fit(rows).history["loss"]) == 2


@pytest.mark.fault
@pytest.mark.full
@pytest.mark.parametrize("strategy", ASYNCHRONOUS)
def test_a_killed_worker_is_tolerated(spark_gpus: "SparkSession", tmp_path: Path, strategy: str) -> None:
    model = estimator(
        strategy, numWorkers=3, callbacks=[kill_once(tmp_path / "killed", "worker 1", after=40)]
    ).fit(digit_rows(spark_gpus))
    assert (tmp_path / "killed").exists()
    assert model.result.attempts == 1
    assert [report.ending for report in model.result.reports] == ["returned", "lost", "returned", "returned"]
    assert accuracy_of(model) >= 0.93  # a third of the rows is gone


@pytest.mark.full
def test_two_servers_share_the_variables_and_a_worker_has_no_rows(spark_gpus: "SparkSession") -> None:
    rows = digit_rows(spark_gpus).limit(2).repartition(1)
    for strategy in ASYNCHRONOUS:
        model = estimator(strategy, numWorkers=3, numPs=2, epochs=2).fit(rows)
        assert np.isfinite(model.history["loss"]).all()
        assert [report.role for report in model.result.reports][3:] == ["ps", "ps"]


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"strategy": "async"}, "strategy='async'"),
        ({"strategy": "periodic", "numPs": 0}, "numPs=0"),
        ({"strategy": "periodic", "syncInterval": 0}, "syncInterval=0"),
        ({"strategy": "periodic", "combiner": "sum"}, "combiner='sum'"),
    ],
)
def test_wrong_values_are_named(params: dict[str, Any], said: str) -> None:
    with pytest.raises(ef.ConfigError, match=said):
        ef.KerasEstimator(model=digit_model, **params)


def test_a_chief_without_workers_is_refused(spark_gpus: "SparkSession") -> None:
    with pytest.raises(ef.ConfigError, match="numWorkers=1, numPs=1"):
        estimator("parameter_server", numWorkers=1).fit(digit_rows(spark_gpus))


def test_a_function_as_combiner_is_not_saved(tmp_path: Path) -> None:
    stage = estimator("periodic", combiner=lambda server, pushed, pulled: server + (pushed - pulled) / 2)
    with pytest.raises(ef.ConfigError, match="combiner"):
        stage.write().save(str(tmp_path / "stage"))
