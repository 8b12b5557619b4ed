"""Fixtures for tests that need Hadoop's own servers; skipped where Maven cannot bring them."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from emberflow.errors import ClusterError
from emberflow.local.hadoop import LocalHadoop, running_hadoop
from emberflow.local.hadoop_jars import hadoop_jars


@pytest.fixture(scope="session")
def hdfs() -> Iterator[LocalHadoop]:
    """A NameNode and a DataNode, for all tests of this process."""
    with hadoop_or_skip(yarn=False) as running:
        yield running


@pytest.fixture(scope="session")
def hadoop() -> Iterator[LocalHadoop]:
    """HDFS and YARN, for all tests of this process."""
    with hadoop_or_skip(yarn=True) as running:
        yield running


@contextmanager
def hadoop_or_skip(*, yarn: bool, data_nodes: int = 1) -> Iterator[LocalHadoop]:
    """Run a Hadoop; the test is skipped where Maven cannot bring its jars."""
    try:
        hadoop_jars()
    except ClusterError as error:
        pytest.skip(str(error))
    with running_hadoop(yarn=yarn, data_nodes=data_nodes) as running:
        yield running
