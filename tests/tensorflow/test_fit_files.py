"""`KerasEstimator.fitFiles`: files that the nodes read, an evaluator beside them, and going on from a checkpoint."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import emberflow as ef
from emberflow.cli.main import app
from emberflow.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 40
PROGRAM = """
import keras

def build_model():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2, "softmax", kernel_initializer="zeros")])
    model.compile(keras.optimizers.SGD(5.0), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
"""


def build_model() -> Any:
    names: dict[str, Any] = {}
    exec(PROGRAM, names)
    return names["build_model"]()


def write_rows(path: Path) -> None:
    share = np.arange(ROWS) / ROWS
    x = pa.array(np.stack([share, 1 - share], axis=1).astype("float32").tolist(), pa.list_(pa.float32()))
    table = pa.table({"x": x, "kind": pa.array((share >= 0.5).astype("int64"))})
    pq.write_table(table, path, row_group_size=7)


@pytest.fixture
def rows(tmp_path: Path) -> str:
    write_rows(tmp_path / "rows.parquet")
    return str(tmp_path / "rows.parquet")


def estimator(**params: Any) -> ef.KerasEstimator:
    given = {"featuresCol": "x", "labelCol": "kind", "batchSize": 5, "numWorkers": 2, "verbose": False}
    return ef.KerasEstimator(model=build_model, **(given | params))


def test_files_give_the_weights_of_a_dataframe_with_the_same_rows(
    spark_cluster: "SparkSession", rows: str, nothing_left: None
) -> None:
    # One step per epoch: the rows of the two ways are in other shards, but every step has all of them.
    of_files = estimator(batchSize=ROWS, epochs=4).fitFiles(ef.Parquet(rows), validation=ef.Parquet(rows))
    of_frame = estimator(batchSize=ROWS, epochs=4).fit(spark_cluster.read.parquet(rows))
    for one, other in zip(of_files.keras().get_weights(), of_frame.keras().get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert of_files.history["loss"] == pytest.approx(of_frame.history["loss"], abs=1e-5)
    assert len(of_files.history["val_accuracy"]) == 4


@pytest.mark.full
def test_the_evaluator_evaluates_what_the_command_trains_and_the_next_command_continues(
    spark_three: "SparkSession", rows: str, tmp_path: Path, nothing_left: None
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    folders = {name: tmp_path / name for name in ("model", "checkpoints", "events")}
    command = [
        *("train", str(tmp_path / "program.py"), rows, str(folders["model"]), "--input-mode", "files"),
        *("--features", "x", "--label", "kind", "--workers", "2", "--batch-size", "5", "--evaluation", rows),
        *("--checkpoint-dir", str(folders["checkpoints"]), "--tensorboard-dir", str(folders["events"])),
    ]
    early = CliRunner().invoke(app, [*command, "--continue"])
    assert early.exit_code == 2
    assert "must be a checkpoint to continue from" in early.output
    first = CliRunner().invoke(app, [*command, "--epochs", "3"])
    assert first.exit_code == 0, first.output
    assert re.search(
        r"The evaluator's last: accuracy \S+  loss \S+ \(step 12\)", first.output
    )  # 3 epochs of 4 steps
    assert list(folders["events"].glob("train/events.out.tfevents.*"))
    assert list(folders["events"].glob("evaluator/events.out.tfevents.*"))
    second = CliRunner().invoke(app, [*command, "--epochs", "5", "--continue"])
    assert second.exit_code == 0, second.output
    assert "(step 20)" in second.output
    model = ef.KerasModel.load(str(folders["model"]))
    assert len(model.history["loss"]) == 5
    assert model.history["loss"][4] < model.history["loss"][0]
    right = model.transform(spark_three.read.parquet(rows)).where("prediction = kind").count()
    assert right >= ROWS - 2


def test_what_files_cannot_do_is_refused_before_anything_starts(
    spark_cluster: "SparkSession", rows: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="are not split"):
        estimator(validationSplit=0.5).fitFiles(ef.Parquet(rows))
    with pytest.raises(ConfigError, match="checkpointDir=None"):
        estimator(evaluation=ef.Parquet(rows)).fitFiles(ef.Parquet(rows))
    with pytest.raises(ConfigError, match=r"without \['z'\]"):
        estimator(featuresCol="z").fitFiles(ef.Parquet(rows))
    (tmp_path / "program.py").write_text(PROGRAM)
    columns = ("--features", "x", "--label", "kind")
    csv = ["train", str(tmp_path / "program.py"), "rows.csv", str(tmp_path / "model"), *columns]
    for wrong, said in {
        ("--input-mode", "files"): "Nodes read tfrecord and parquet",
        ("--input-mode", "file"): "must be one of spark, files",
        ("--input-mode", "files", "--columns", "x float"): "take the columns of the files",
    }.items():
        done = CliRunner().invoke(app, [*csv, *wrong])
        assert done.exit_code == 2
        assert said in " ".join(done.output.split())
