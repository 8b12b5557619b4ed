"""`emberflow train`, `predict` and `show` as a person types them: files in, files out, exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from emberflow.cli.main import app
from emberflow.errors import ClusterError
from emberflow.ml import KerasModel
from tests.sessions import Sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EMBERFLOW = [sys.executable, "-m", "emberflow.cli.main"]
MASTER = ["--master", "local[2]"]
COLUMNS = ["--features", "length", "--features", "width", "--label", "kind"]
ROWS = [{"id": at, "length": at / 64, "width": 1 - at / 64, "kind": int(at >= 32)} for at in range(64)]
PROGRAM = """
import keras

def build_model():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2, "softmax", kernel_initializer="zeros")])
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.optimizer.learning_rate = 5.0
    return model
"""


def run(*command: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command as a shell would; its exit code is part of what it promises."""
    own = ("PYSPARK_PYTHON", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")  # of this process
    env = {name: value for name, value in os.environ.items() if name not in own}
    env |= {"SPARK_SUBMIT_OPTS": "-Dspark.ui.enabled=false", "PYSPARK_DRIVER_PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=200)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def submit(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line inside spark-submit, as its help says."""
    import pyspark

    file = run(*EMBERFLOW, "--submit-file").stdout.strip()
    program = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    python = ["--conf", f"spark.pyspark.python={sys.executable}"]
    return run(program, *MASTER, *python, file, *arguments)


def said_to(code: int, *arguments: str) -> str:
    """Give the command line to this process, which has a session already: not each needs a Spark of its own."""
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == code, done.output
    return " ".join(done.output.split())


# One kind of cluster for all: tests of different kinds run in different processes, and each would make `folder`.
TOGETHER = pytest.mark.usefixtures("spark_cluster")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, sessions: Sessions) -> Path:
    """A folder with a program, the same rows in four formats, and a model that was trained on the csv."""
    sessions.get("cluster")
    folder = tmp_path_factory.mktemp("jobs")
    (folder / "program.py").write_text(PROGRAM)
    table = pa.Table.from_pylist(ROWS)
    pa_csv.write_csv(table, folder / "rows.csv")
    pq.write_table(table, folder / "rows.parquet")
    (folder / "rows.json").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    said_to(0, "convert", str(folder / "rows.parquet"), str(folder / "rows.tfrecord"))
    train = ["train", str(folder / "program.py"), str(folder / "rows.csv"), str(folder / "model"), *COLUMNS]
    said = said_to(0, *train, "--epochs", "30", "--workers", "1", "--batch-size", "64", "--quiet")
    assert "The model is in" in said
    assert "accuracy 0." in said or "accuracy 1" in said
    return folder


def read_back(path: Path, kind: str) -> list[dict[str, Any]]:
    files = [str(file) for file in sorted(path.glob("part-*"))]
    assert files
    if kind == "parquet":
        rows = pq.read_table(files).to_pylist()
    elif kind == "csv":
        rows = [row for file in files for row in pa_csv.read_csv(file).to_pylist()]
    else:
        rows = [json.loads(line) for file in files for line in Path(file).read_text().splitlines()]
    return sorted(rows, key=lambda row: row["id"])


def assert_scored(rows: list[dict[str, Any]]) -> None:
    assert [{name: row[name] for name in ROWS[0]} for row in rows] == [
        {**row, "length": pytest.approx(row["length"]), "width": pytest.approx(row["width"])} for row in ROWS
    ]
    assert sum(row["prediction"] == row["kind"] for row in rows) >= 60


@pytest.mark.full
@TOGETHER
def test_predict_from_csv_to_json(folder: Path) -> None:
    out = folder / "from-csv.json"
    done = run(*EMBERFLOW, "predict", str(folder / "rows.csv"), str(folder / "model"), str(out), *MASTER)
    assert f"The scored rows are in {out}." in done.stdout
    rows = read_back(out, "json")
    assert_scored(rows)
    assert all(abs(sum(row["probability"]) - 1) < 1e-5 for row in rows)


@TOGETHER
def test_predict_from_parquet_to_csv_inside_spark_submit(folder: Path) -> None:
    out = folder / "from-parquet.csv"
    submit("predict", str(folder / "rows.parquet"), str(folder / "model"), str(out))
    rows = read_back(out, "csv")
    assert_scored(rows)
    assert all(len(json.loads(row["probability"])) == 2 for row in rows)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["json", "tfrecord"])
@TOGETHER
def test_predict_by_a_saved_model_that_knows_no_columns(folder: Path, kind: str) -> None:
    out = folder / f"from-{kind}.parquet"
    chosen = ["--inputs", "length", "--inputs", "width", "--outputs", "scores", "--keep", "id"]
    paths = [str(folder / f"rows.{kind}"), str(folder / "model" / "saved_model"), str(out)]
    run(*EMBERFLOW, "predict", *paths, *chosen, "--batch-size", "7", *MASTER)
    rows = read_back(out, "parquet")
    assert [row["id"] for row in rows] == list(range(64))
    assert all(set(row) == {"id", "scores"} and abs(sum(row["scores"]) - 1) < 1e-5 for row in rows)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["parquet", "json", "tfrecord"])
@TOGETHER
def test_train_on_other_formats_and_inside_spark_submit(folder: Path, kind: str) -> None:
    out = folder / f"model-{kind}"
    paths = [str(folder / "program.py"), str(folder / f"rows.{kind}"), str(out)]
    if kind == "parquet":
        submit("train", *paths, *COLUMNS, "--workers", "2", "--param", "optimizer=adam")
    else:
        run(*EMBERFLOW, "train", *paths, *COLUMNS, "--workers", "1", *MASTER)
    assert (out / "saved_model" / "saved_model.pb").exists()


@pytest.mark.full
def test_train_and_predict_on_connect(folder: Path, spark_connect: "SparkSession") -> None:
    master = ["--master", f"sc://{spark_connect.client._builder.endpoint}"]  # type: ignore[attr-defined]
    model, out = str(folder / "model-connect"), folder / "from-connect.json"
    train = ["train", str(folder / "program.py"), str(folder / "rows.parquet"), model, *COLUMNS, *master]
    assert "Pass both as numbers" in run(*EMBERFLOW, *train, code=2).stderr  # Connect does not tell its slots
    run(*EMBERFLOW, *train, "--workers", "2")
    run(*EMBERFLOW, "predict", str(folder / "rows.parquet"), model, str(out), *master)
    assert [row["id"] for row in read_back(out, "json")] == list(range(64))


@TOGETHER
def test_show_says_columns_signature_and_versions(folder: Path) -> None:
    said = said_to(0, "show", str(folder / "model"))
    assert "emberflow.ml.KerasModel, created by emberflow " in said
    assert "reads columns length, width (trained for kind)" in said
    assert "adds columns rawPrediction, probability, prediction" in said
    assert "signature serving_default" in said
    assert "(float32 of shape (2,))" in said
    assert "created by TensorFlow" in said
    keras_file = said_to(0, "show", str(folder / "model" / "model.keras"))
    assert "Keras model, loaded here by" in keras_file
    assert " input " in keras_file
    assert "There must be a model" in said_to(2, "show", str(folder / "nowhere"))


def test_wrong_input_is_two(folder: Path, spark_cluster: "SparkSession", tmp_path: Path) -> None:
    program, rows, model = (str(folder / name) for name in ("program.py", "rows.csv", "model"))
    out = str(tmp_path / "out.csv")
    (tmp_path / "empty.py").write_text("x = 1\n")
    assert "must define a function `build_model`" in said_to(
        2, "train", str(tmp_path / "empty.py"), rows, out, *COLUMNS
    )
    assert "must be a Python file" in said_to(2, "train", "nowhere.py", rows, out, *COLUMNS)
    assert "no Param of this name" in said_to(
        2, "train", program, rows, out, *COLUMNS, "--param", "optimiser=adam"
    )
    assert "without ['colour']" in said_to(2, "train", program, rows, out, *COLUMNS, "--features", "colour")
    assert "PATH_NOT_FOUND" in said_to(2, "train", program, str(tmp_path / "none.csv"), out, *COLUMNS)
    assert "--format parquet" in said_to(2, "train", program, str(tmp_path / "none"), out, *COLUMNS)
    assert "PATH_NOT_FOUND" in said_to(2, "predict", str(tmp_path / "none.csv"), model, out)
    assert "There must be a model" in said_to(2, "predict", rows, str(tmp_path / "none"), out)
    assert "--output-format" in said_to(2, "predict", rows, model, str(tmp_path / "out"))
    assert "has its own columns" in said_to(2, "predict", rows, model, out, "--inputs", "length")
    assert "name=value" in said_to(2, "predict", rows, model, out, "--option", "header")
    assert "No such option" in said_to(2, "predict", rows, model, out, "--outptu", "x")
    assert not Path(out).exists()


def test_a_failed_run_is_one(folder: Path, spark_cluster: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def build_model():\n    raise ValueError('no such layer')\n")
    train = [str(tmp_path / "broken.py"), str(folder / "rows.csv"), str(tmp_path / "model")]
    assert "no such layer" in said_to(1, "train", *train, *COLUMNS, "--workers", "1")
    assert not (tmp_path / "model").exists()
    (tmp_path / "rows.csv").write_text("length,width\n1.0,\n2.0,0.5\n")
    predict = [str(tmp_path / "rows.csv"), str(folder / "model"), str(tmp_path / "out.csv")]
    said = said_to(1, "predict", *predict)
    assert said.startswith("Column 'width' must hold")
    assert "Fix:" in said
    assert "Traceback" not in said


def test_a_saved_model_asks_spark_for_the_gpus_of_its_tasks(
    folder: Path, spark_cluster: "SparkSession"
) -> None:
    model = KerasModel.load(str(folder / "model"))
    assert model.getGpusPerTask() == 0
    with pytest.raises(ClusterError, match="manages no GPUs"):
        model.setGpusPerTask(1).transform(spark_cluster.read.parquet(str(folder / "rows.parquet")))


@pytest.mark.parametrize("command", ["train", "predict", "show", "convert"])
def test_help_teaches_by_example(command: str) -> None:
    assert f"emberflow {command} " in said_to(0, command, "--help").partition("For example")[2]
