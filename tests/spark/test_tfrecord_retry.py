"""Tasks that are killed while they write: Spark repeats them, and the folder holds each row once."""

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import TaskContext
from pyspark.sql.types import StructType

from emberflow.tfrecord.options import parse_options
from emberflow.tfrecord.spark_source import TFRecordSource
from emberflow.tfrecord.spark_writer import TFRecordWriter
from tests import sessions as kinds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


pytestmark = pytest.mark.full  # two clusters of its own


class DyingWriter(TFRecordWriter):
    """Its first attempt at one task is killed after some rows are on disk."""

    def write(self, iterator: "Iterator[Any]") -> Any:
        task = TaskContext.get()
        assert task is not None
        if task.partitionId() == 1 and task.attemptNumber() == 0:
            return super().write(self._dying(iterator))
        return super().write(iterator)

    def _dying(self, iterator: "Iterator[Any]") -> "Iterator[Any]":
        yield next(iterator)
        assert list(Path(self._path).rglob("part-00001-*")), "the file is begun"
        (Path(self._path).parent / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)


class DyingSource(TFRecordSource):
    """The data source with such a writer."""

    @classmethod
    def name(cls) -> str:
        return "tfrecord_dying"

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        return DyingWriter(schema, parse_options(self.options), overwrite=overwrite)


@pytest.fixture(params=["cluster", "connect"])
def retrying(
    request: pytest.FixtureRequest, sessions: kinds.Sessions, monkeypatch: pytest.MonkeyPatch
) -> "Iterator[SparkSession]":
    """A session that repeats failed tasks: those of the other tests do not."""
    sessions.close()
    monkeypatch.setitem(kinds.SETTINGS, "spark.task.maxFailures", "4")
    with kinds.KINDS[request.param]() as session:
        yield session


@pytest.mark.fault
def test_a_killed_task_is_repeated_and_each_row_is_there_once(
    retrying: "SparkSession", tmp_path: Path
) -> None:
    retrying.dataSource.register(DyingSource)
    for mode in ("append", "overwrite"):
        path = tmp_path / mode / "out"
        retrying.range(0, 1000, 1, 4).write.format("tfrecord_dying").mode(mode).save(str(path))
        assert (path.parent / "killed").exists()
        rows = retrying.read.format("tfrecord").load(str(path)).collect()
        assert sorted(row["id"] for row in rows) == list(range(1000))
        assert len(list(path.glob("part-*"))) == 4
        assert not [*path.glob("_temporary*"), *path.glob(".*")]
