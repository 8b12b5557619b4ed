"""Paths without a scheme where HDFS is the default file system: Spark's files and ours end in one place, on HDFS."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import emberflow as ef
from emberflow import storage
from emberflow.local.hadoop import LocalHadoop
from emberflow.ml.model_outputs import ModelOutput
from emberflow.ml.training import Trained, file_of
from emberflow.storage import StorageSettings, apply_settings
from tests.spark.keras_models import flower_model, flower_rows, predictions
from tests.spark.test_train_stream import await_that, count_rows, expected, files, stream_driver, write_file
from tests.spark.watching import START

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET_NAME, SECRET = "fs.s3a.secret.key", "never-shown-anywhere"

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.timeout(600)]


@pytest.fixture
def spark_on_hdfs(spark_cluster: "SparkSession", hdfs: LocalHadoop) -> "Iterator[SparkSession]":
    """A cluster whose default file system is HDFS; set while it runs, as programs do, to share the session."""
    context: Any = spark_cluster.sparkContext
    settings = context._jsc.hadoopConfiguration()
    before = settings.get("fs.defaultFS")
    settings.set("fs.defaultFS", hdfs.default_fs)
    settings.set(SECRET_NAME, SECRET)
    yield spark_cluster
    settings.set("fs.defaultFS", before)
    settings.unset(SECRET_NAME)
    apply_settings(StorageSettings())


def flowers() -> ef.KerasModel:
    """A model as `fit` would return it, without the training."""
    import keras

    built = flower_model()
    keras_model = keras.models.clone_model(
        built
    )  # not compiled: an optimizer that has not trained has no state
    keras_model.set_weights(built.get_weights())
    output = ModelOutput(output="output_0", kind="classes", is_probability=True)
    trained = Trained(keras_file=file_of(keras_model), history={"loss": [1.0]}, outputs=(output,))
    model = ef.KerasModel(trained=trained)
    model._set(featuresCols=["length", "width"])
    return model


@pytest.mark.full
def test_a_pipeline_saved_without_a_scheme_loads_in_another_driver(
    spark_on_hdfs: "SparkSession", hdfs: LocalHadoop
) -> None:
    from pyspark.ml import PipelineModel
    from pyspark.ml.feature import StringIndexer

    rows = flower_rows(spark_on_hdfs)
    indexer = StringIndexer(inputCol="kind", outputCol="index").fit(rows)
    model = PipelineModel([indexer, flowers()])
    path = f"{hdfs.home}/flowers"
    model.write().overwrite().save(path)
    assert not Path(path).exists(), "a part of it is on the driver's disk"
    listing = hdfs.run_fs_shell("-ls", "-R", path)
    assert f"{path}/metadata/_SUCCESS" in listing
    assert "/saved_model/saved_model.pb" in listing
    scored: Any = model.transform(rows)
    assert SECRET not in scored._jdf.queryExecution().toString()
    wanted = predictions(scored)
    assert predictions(PipelineModel.load("flowers").transform(rows)) == wanted  # the same, from the home

    command = [sys.executable, "-m", "tests.spark.load_elsewhere", path, "local-cluster[1,1,1024]"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment_of(hdfs), check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.strip().splitlines()[-1]) == wanted


def environment_of(hdfs: LocalHadoop) -> dict[str, str]:
    """Return the environment of a driver that finds this HDFS by HADOOP_CONF_DIR."""
    import os

    return os.environ | {"HADOOP_CONF_DIR": str(hdfs.conf_dir)}


@pytest.mark.full
def test_nodes_read_and_write_where_the_driver_does(spark_on_hdfs: "SparkSession", hdfs: LocalHadoop) -> None:
    """Files, checkpoints and exports, by paths of the home; relative ones in the nodes mean the same."""
    frame = spark_on_hdfs.range(40).selectExpr("id", "cast(id as float) as x")
    frame.write.mode("overwrite").parquet("nodes/parquet")
    ef.tfrecord.write(frame, "nodes/tfrecord", mode="overwrite")
    reread = spark_on_hdfs.read.format("tfrecord").load("nodes/tfrecord")
    assert sorted(row["id"] for row in reread.collect()) == list(range(40))

    def work(ctx: Any) -> Any:
        import tensorflow as tf

        assert storage.current_settings().hadoop[SECRET_NAME] == SECRET
        for file in ("cmdline", "environ"):
            assert SECRET.encode() not in Path(f"/proc/self/{file}").read_bytes()
        seen = {
            name: [row for batch in ctx.arrow(name) for row in batch.column("id").to_pylist()]
            for name in ("parquet", "tfrecord")
        }
        with ctx.open(f"nodes/seen-{ctx.rank}.json", "w") as file:
            json.dump(seen, file)
        ctx.save_checkpoint(lambda folder: (folder / "x").write_text("kept"), step=1)
        exported = ctx.export(tf.Module(), "nodes/export")
        with ctx.open(f"{ctx.absolute_path('nodes')}/seen-{ctx.rank}.json", "rb") as file:
            assert json.load(file) == seen
        kept = (ctx.latest_checkpoint().path / "x").read_text() if ctx.is_chief else ""
        return ctx.checkpoint_dir, exported, ctx.absolute_path("/x"), kept

    data = {"parquet": ef.Parquet("nodes/parquet"), "tfrecord": ef.TFRecords("nodes/tfrecord")}
    result = ef.run(
        work, workers=2, data=data, checkpoint_dir="nodes/checkpoints", spark=spark_on_hdfs, verbose=False
    )
    home = hdfs.default_fs + hdfs.home
    assert result.value == (
        f"{home}/nodes/checkpoints",
        f"{home}/nodes/export",
        f"{hdfs.default_fs}/x",
        "kept",
    )
    seen = [json.loads(hdfs.run_fs_shell("-cat", f"{home}/nodes/seen-{rank}.json")) for rank in (0, 1)]
    for name in data:
        assert sorted(seen[0][name] + seen[1][name]) == list(range(40))
    listing = hdfs.run_fs_shell("-ls", "-R", f"{home}/nodes")
    assert "/nodes/export/saved_model.pb" in listing
    assert "/nodes/checkpoints/attempt-00000-" in listing


def stored(url: str) -> list[int]:
    """Return the newest stored model of a stream on HDFS."""
    records = sorted(
        file.path for file in storage.list_files(storage.join(url, "model")) if "/batch-" in file.path
    )
    record = json.loads(storage.read_bytes(records[-1]))
    seen: list[int] = json.loads(storage.read_bytes(storage.join(url, "model", record["model"], "seen.json")))
    assert record["rows"] == seen[0]
    return seen


@pytest.mark.full
@pytest.mark.fault
def test_of_two_drivers_on_one_checkpoint_on_hdfs_the_later_wins(
    spark_on_hdfs: "SparkSession", hdfs: LocalHadoop, tmp_path: Path
) -> None:
    """The earlier one fails at its next store; what it had trained on is trained on by the later one."""
    source, checkpoint = tmp_path / "in", "streams/count"
    url = f"{hdfs.default_fs}{hdfs.home}/{checkpoint}"

    def has_stored(batch: int) -> bool:
        found = storage.list_files(storage.join(url, "model"))
        return any(file.path.endswith(f"/batch-{batch:09d}.json") for file in found)

    write_file(source, 0)
    with stream_driver(tmp_path, checkpoint, environment_of(hdfs)) as earlier:
        await_that(lambda: has_stored(0), earlier, tmp_path)
        (tmp_path / "hold").touch()
        write_file(source, 1)
        await_that((tmp_path / "held").exists, earlier, tmp_path)  # it has trained on it, and not stored
        with ef.cluster(count_rows, workers=1, spark=spark_on_hdfs, verbose=False) as cluster:
            query = cluster.train_stream(files(spark_on_hdfs, source), checkpoint=checkpoint)
            query.processAllAvailable()
            assert stored(url) == expected(2)
            (tmp_path / "go-on").touch()
            assert earlier.wait(START) != 0
            assert "Only the newest driver" in (tmp_path / "driver.log").read_text()
            query.stop()
            assert query.exception() is None
    assert stored(url) == expected(2)
