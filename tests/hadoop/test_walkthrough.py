"""The MNIST walk-through from start to end: prepare, train, predict, both ways, and continue from the checkpoint."""

import os
from pathlib import Path
from typing import Any

import pytest

from emberflow.local.cluster import local_cluster
from emberflow.local.hadoop import LocalHadoop
from tests.conftest import mnist_folder
from tests.hadoop.maven import maven_jars
from tests.hadoop.s3_server import s3_server
from tests.hadoop.walkthrough import (
    FILES_LINE,
    SPARK_LINE,
    Walk,
    command_runner,
    script_runner,
    write_tiny_mnist,
)
from tests.sessions import Sessions, classic

PARTITIONS, EPOCHS = 2, 4
TINY = {"PARTITIONS": str(PARTITIONS), "EPOCHS": str(EPOCHS)}
TINY_ROWS, MNIST_ROWS = 48, 10_000
THREE_SLOTS = {"spark.cores.max": "3"}  # two workers and the evaluator
SIMPLE_KEYS = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
SCRIPT_TIMEOUT = 900.0  # seconds for one step: a busy machine trains slowly


def home_of(hadoop: LocalHadoop, folder: str) -> str:
    return f"{hadoop.default_fs}{hadoop.home}/{folder}"


def tiny_walk(folder: Path, mnist: str, root: str) -> Walk:
    """Return the steps on images that a network learns at once.

    Args:
        folder: An empty folder.
        mnist: The folder of the walk-through as the scripts are told it.
        root: The same as a URL.
    """
    write_tiny_mnist(folder, test=TINY_ROWS)
    step = command_runner(TINY | {"MNIST": mnist}, folder)
    return Walk(step=step, root=root, images=folder, test_rows=TINY_ROWS, least=0.9)


@pytest.mark.timeout(900)
def test_each_step_works_on_hdfs_and_standalone(
    hdfs: LocalHadoop, tmp_path: Path, sessions: Sessions, nothing_left: None
) -> None:
    sessions.close()
    settings = THREE_SLOTS | {"spark.hadoop.fs.defaultFS": hdfs.default_fs}
    with (
        local_cluster(workers=1, cores=3) as cluster,
        classic(cluster.url, settings, cluster.properties_file),
    ):
        tiny_walk(tmp_path, "tiny", home_of(hdfs, "tiny")).all_steps(partitions=PARTITIONS, epochs=EPOCHS)
    listed = hdfs.run_fs_shell("-ls", "-R", "tiny")
    for wanted in (
        "with_spark/export/model.keras",
        "with_files/events/evaluator/events.out",
        "predictions/_SUCCESS",
    ):
        assert wanted in listed


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_the_scripts_work_on_hdfs_and_yarn(
    hadoop: LocalHadoop, tmp_path: Path, sessions: Sessions, nothing_left: None
) -> None:
    sessions.close()
    options = f"--properties-file {hadoop.properties_file} --num-executors 3"
    settings = TINY | hadoop.environment() | {"MASTER": "yarn", "SUBMIT_OPTIONS": options}
    write_tiny_mnist(tmp_path, test=TINY_ROWS)
    walk = Walk(
        step=script_runner(settings, SCRIPT_TIMEOUT),
        root=home_of(hadoop, "mnist"),
        images=tmp_path,
        test_rows=TINY_ROWS,
        least=0.9,
    )
    walk.all_steps(partitions=PARTITIONS, epochs=EPOCHS)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_mnist_is_learnt_on_hdfs_both_ways(
    hdfs: LocalHadoop, mnist: Any, tmp_path: Path, sessions: Sessions, nothing_left: None
) -> None:
    sessions.close()
    settings = THREE_SLOTS | {"spark.hadoop.fs.defaultFS": hdfs.default_fs}
    walk = Walk(
        step=command_runner({"MNIST": "real"}, tmp_path),  # epochs and partitions as the scripts have them
        root=home_of(hdfs, "real"),
        images=mnist_folder(),
        test_rows=MNIST_ROWS,
        least=0.98,
    )
    with (
        local_cluster(workers=3, cores=1) as cluster,
        classic(cluster.url, settings, cluster.properties_file),
    ):
        walk.prepare(partitions=10)
        walk.train_and_predict("spark", SPARK_LINE)
        walk.train_and_predict("files", FILES_LINE)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_each_step_works_on_s3(tmp_path: Path, sessions: Sessions, nothing_left: None) -> None:
    jars = maven_jars("org.apache.hadoop:hadoop-aws:3.5.0", tmp_path)
    sessions.close()
    url = "s3a://walk/mnist"
    with s3_server("walk") as endpoint:
        settings = THREE_SLOTS | {
            # In place: the jar of AWS has more than half a gigabyte.
            "spark.driver.extraClassPath": os.pathsep.join(str(jar) for jar in jars),
            "spark.executor.extraClassPath": os.pathsep.join(str(jar) for jar in jars),
            "spark.hadoop.fs.s3a.endpoint": endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": "testing",
            "spark.hadoop.fs.s3a.secret.key": "testing",
            "spark.hadoop.fs.s3a.aws.credentials.provider": SIMPLE_KEYS,
        }
        with (
            local_cluster(workers=1, cores=3) as cluster,
            classic(cluster.url, settings, cluster.properties_file),
        ):
            tiny_walk(tmp_path, url, url).all_steps(partitions=PARTITIONS, epochs=EPOCHS)
