"""Keras callbacks that write to S3, on real executors: complete at the end, and resumed after a killed chief."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import emberflow as ef
from emberflow import storage
from tests.hadoop.s3_server import s3_server
from tests.spark.keras_models import flower_model, flower_rows
from tests.spark.test_tensorboard import await_text, runs_at, write_event
from tests.spark.watching import START, await_begun, await_file, begin, start_run
from tests.tensorflow.remote_training import EPOCHS, KILLED_IN, Train

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.timeout(600)]

CHECKPOINTS = [f"{epoch:02d}.keras" for epoch in range(1, EPOCHS + 1)]


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    """Hadoop's settings for a server of S3 on loopback that has a bucket ``runs``."""
    with s3_server("runs") as endpoint:
        yield {
            "fs.s3a.endpoint": endpoint,
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.access.key": "testing",
            "fs.s3a.secret.key": "testing",
        }


@pytest.fixture
def bucket(spark_cluster: "SparkSession", s3: dict[str, str]) -> Iterator[str]:
    """The bucket's URL, in a session that has its settings."""
    configuration = spark_cluster.sparkContext._jsc.hadoopConfiguration()
    before = storage.current_settings()
    for name, value in s3.items():
        configuration.set(name, value)
    storage.apply_settings(storage.StorageSettings(hadoop=s3))
    yield "s3://runs"
    storage.apply_settings(before)
    for name in s3:
        configuration.unset(name)


def names_below(url: str) -> list[str]:
    """Return the files there but those of checkpoints, the exported model and event files."""
    found = [file.path.removeprefix(f"{url}/") for file in storage.list_files(url)]
    return [name for name in found if not name.startswith(("checkpoints/", "export/", "logs/"))]


def check_files(url: str, tmp_path: Path, weights: Any) -> None:
    """All callbacks have written, and what they wrote can be read."""
    assert names_below(url) == [*CHECKPOINTS, "log.csv", "notes/0.txt", "notes/1.txt"]
    rows = storage.read_bytes(f"{url}/log.csv").decode().splitlines()
    assert [row.partition(",")[0] for row in rows] == ["epoch", *map(str, range(EPOCHS))]
    assert any("tfevents" in file.path for file in storage.list_files(f"{url}/logs/train"))
    storage.get_folder(f"{url}/export/1", tmp_path / "export")
    assert (tmp_path / "export" / "saved_model.pb").exists()
    import zipfile

    import h5py

    (tmp_path / "last.keras").write_bytes(storage.read_bytes(f"{url}/{CHECKPOINTS[-1]}"))
    with zipfile.ZipFile(tmp_path / "last.keras") as archive:
        archive.extract("model.weights.h5", tmp_path)
    with h5py.File(tmp_path / "model.weights.h5") as saved:
        assert saved["layers/dense/vars/0"][:].tolist() == weights[0]


def test_two_workers_write_to_s3(spark_cluster: "SparkSession", bucket: str, tmp_path: Path) -> None:
    url = f"{bucket}/plain"
    options = {"workers": 2, "checkpoint_dir": f"{url}/checkpoints", "spark": spark_cluster, "verbose": False}
    first, second = ef.run(Train(url), **options).reports
    assert first.value["epochs"] == second.value["epochs"] == list(range(EPOCHS))
    check_files(url, tmp_path, first.value["weights"])


@pytest.mark.full
@pytest.mark.fault
def test_callbacks_on_s3_are_resumed_after_the_chief_was_killed(
    spark_cluster: "SparkSession", bucket: str, tmp_path: Path
) -> None:
    url = f"{bucket}/killed"
    options = {"workers": 2, "checkpoint_dir": f"{url}/checkpoints", "spark": spark_cluster, "verbose": False}
    first, second = ef.run(Train(url, dies=True), max_restarts=1, **options).reports
    assert first.value["attempt"] == 1
    assert first.value["epochs"] == second.value["epochs"] == list(range(KILLED_IN, EPOCHS))
    check_files(url, tmp_path, first.value["weights"])


@pytest.mark.full
def test_callbacks_of_an_estimator_write_to_s3(
    spark_cluster: "SparkSession", bucket: str, tmp_path: Path
) -> None:
    """The driver's callbacks are sent to the nodes: paths that they hold are remote there as well."""
    import keras

    url = f"{bucket}/estimator"
    stage = ef.KerasEstimator(
        model=flower_model,
        featuresCols=["length", "width"],
        callbacks=[
            keras.callbacks.ModelCheckpoint(f"{url}/{{epoch:02d}}.keras"),
            keras.callbacks.BackupAndRestore(f"{url}/backup"),
            keras.callbacks.CSVLogger(f"{url}/log.csv", append=True),
            keras.callbacks.TensorBoard(f"{url}/logs"),
        ],
        epochs=2,
        numWorkers=2,
        verbose=False,
    )
    model = stage.fit(flower_rows(spark_cluster))
    assert names_below(url) == ["01.keras", "02.keras", "log.csv"]
    assert any("tfevents" in file.path for file in storage.list_files(f"{url}/logs/train"))
    (tmp_path / "last.keras").write_bytes(storage.read_bytes(f"{url}/02.keras"))
    stored = keras.models.load_model(tmp_path / "last.keras")
    for ours, theirs in zip(stored.get_weights(), model.keras().get_weights(), strict=True):
        assert ours.tolist() == theirs.tolist()
    assert not Path("s3:").exists(), "a callback wrote to the driver's disk"


def check_tensorboard_shows(
    spark: "SparkSession", logs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """TensorBoard of a run shows event files of a remote folder: its own, and those of another program."""

    def train(ctx: Any) -> None:
        if ctx.is_chief:
            write_event(ctx.mirror(f"{logs}/mine", fetch=False))
        begin(tmp_path, ctx.rank)
        await_file(tmp_path / "end")

    run = start_run(spark, train, tensorboard=logs, verbose=True)
    await_begun(tmp_path, 0)
    url = await_text(lambda: capsys.readouterr().err, r"TensorBoard: (http\S+)")
    write_event(tmp_path / "theirs")  # while TensorBoard runs
    (file,) = (tmp_path / "theirs").iterdir()
    storage.write_bytes(f"{logs}/theirs/{file.name}", file.read_bytes())
    await_text(lambda: json.dumps(runs_at(url)), '"(theirs)"')
    assert set(runs_at(url)) == {"mine", "theirs"}
    (tmp_path / "end").write_text("well")
    assert run.result(timeout=START).tensorboard_url == url
    assert any("tfevents" in each.path for each in storage.list_files(f"{logs}/mine"))


@pytest.mark.full
def test_tensorboard_shows_event_files_on_s3(
    spark_cluster: "SparkSession", bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_tensorboard_shows(spark_cluster, f"{bucket}/shown", tmp_path, capsys)
