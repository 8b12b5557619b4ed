"""Keras callbacks, checkpoints, exports and TensorBoard on HDFS, with real nodes."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import emberflow as ef
from emberflow import storage
from emberflow.local.hadoop import LocalHadoop
from tests.spark.watching import START, await_file, start_run
from tests.tensorflow.remote_training import EPOCHS, KILLED_IN, Train
from tests.tensorflow.test_remote_callbacks import check_files, check_tensorboard_shows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]


@pytest.mark.fault
@pytest.mark.usefixtures("nothing_left")
def test_callbacks_on_hdfs_are_resumed_after_the_chief_was_killed(
    hdfs: LocalHadoop, spark_cluster: "SparkSession", tmp_path: Path
) -> None:
    url = f"{hdfs.default_fs}/runs/killed"
    options = {"workers": 2, "checkpoint_dir": f"{url}/checkpoints", "spark": spark_cluster, "verbose": False}
    first, second = ef.run(Train(url, dies=True), max_restarts=1, **options).reports
    assert first.value["attempt"] == 1
    assert first.value["epochs"] == second.value["epochs"] == list(range(KILLED_IN, EPOCHS))
    check_files(url, tmp_path, first.value["weights"])
    assert not [file.path for file in storage.list_files(url) if "/." in file.path]  # nothing half uploaded


@pytest.mark.fault
def test_uploads_of_callbacks_outlast_a_name_node_that_starts_again(
    hdfs: LocalHadoop, spark_cluster: "SparkSession", default_fs: str, tmp_path: Path
) -> None:
    """Also a node that writes there for the first time meanwhile waits: Hadoop's settings name this HDFS."""
    url = f"{hdfs.default_fs}/runs/outage"
    options = {"checkpoint_dir": f"{url}/checkpoints", "verbose": True}
    run = start_run(spark_cluster, Train(url, gate=tmp_path), **options)
    await_file(tmp_path / "begun")
    with ThreadPoolExecutor(1) as pool:
        restarted = pool.submit(hdfs.restart_name_node)
        (tmp_path / "go").touch()  # the next epochs are trained and saved while HDFS is away
        restarted.result()
    first, _ = run.result(timeout=2 * START).reports
    check_files(url, tmp_path, first.value["weights"])


@pytest.mark.usefixtures("nothing_left")
def test_tensorboard_shows_event_files_on_hdfs(
    hdfs: LocalHadoop, spark_cluster: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_tensorboard_shows(spark_cluster, f"{hdfs.default_fs}/logs/shown", tmp_path, capsys)
