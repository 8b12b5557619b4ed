"""Fixtures for tests that need Hadoop's own servers; skipped where Maven cannot bring them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from emberflow import storage
from emberflow.errors import ClusterError
from emberflow.local.hadoop import LocalHadoop, running_hadoop
from emberflow.local.hadoop_jars import hadoop_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def hdfs(request: pytest.FixtureRequest) -> Iterator[LocalHadoop]:
    """A NameNode and a DataNode, for all tests of this process; those of `hadoop` where tests need that too."""
    if any("hadoop" in getattr(item, "fixturenames", ()) for item in request.session.items):
        yield request.getfixturevalue("hadoop")
        return
    with hadoop_or_skip(yarn=False) as running:
        yield running


@pytest.fixture(scope="session")
def hadoop() -> Iterator[LocalHadoop]:
    """HDFS and YARN, for all tests of this process."""
    with hadoop_or_skip(yarn=True) as running:
        yield running


@pytest.fixture
def default_fs(spark_cluster: "SparkSession", hdfs: LocalHadoop) -> Iterator[str]:
    """HDFS is the default file system of the session."""
    settings = spark_cluster.sparkContext._jsc.hadoopConfiguration()
    before = settings.get("fs.defaultFS")
    settings.set("fs.defaultFS", hdfs.default_fs)
    yield hdfs.default_fs
    settings.set("fs.defaultFS", before)
    storage.apply_settings(storage.StorageSettings())


@contextmanager
def hadoop_or_skip(*, yarn: bool, data_nodes: int = 1) -> Iterator[LocalHadoop]:
    """Run a Hadoop; the test is skipped where Maven cannot bring its jars."""
    try:
        hadoop_jars()
    except ClusterError as error:
        pytest.skip(str(error))
    with running_hadoop(yarn=yarn, data_nodes=data_nodes) as running:
        yield running
