"""A commit that fails inside Spark: what was published is taken back, and a retry writes each row once."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from emberflow import storage
from emberflow.errors import StorageError
from emberflow.tfrecord.options import parse_options
from emberflow.tfrecord.spark_source import TFRecordSource
from emberflow.tfrecord.spark_writer import TFRecordWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class RefusedWriter(TFRecordWriter):
    """Its storage refuses the third file that is published, while a file `refuse` is beside the target."""

    def commit(self, messages: list[Any]) -> None:
        with pytest.MonkeyPatch.context() as patch:
            real, published = storage.rename, []

            def refusing(source: str, target: str) -> None:
                published.append(target) if target.endswith(".tfrecord") else None
                if len(published) == 3 and Path(self._path).with_name("refuse").exists():
                    raise StorageError("No space is left.", fix="Delete something.")
                real(source, target)

            patch.setattr(storage, "rename", refusing)
            super().commit(messages)


class RefusedSource(TFRecordSource):
    """The data source with such a writer."""

    @classmethod
    def name(cls) -> str:
        return "tfrecord_refused"

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        return RefusedWriter(schema, parse_options(self.options), overwrite=overwrite)


@pytest.mark.fault
def test_a_commit_that_fails_takes_back_what_it_published(
    spark_cluster: "SparkSession", tmp_path: Path
) -> None:
    spark_cluster.dataSource.register(RefusedSource)
    path = tmp_path / "out"

    def write(start: int, stop: int, mode: str) -> None:
        frame = spark_cluster.range(start, stop, 1, 4)
        frame.write.format("tfrecord_refused").mode(mode).save(str(path))

    def ids() -> list[int]:
        rows = spark_cluster.read.format("tfrecord").load(str(path)).collect()
        return sorted(row["id"] for row in rows)

    write(0, 20, "append")
    before = sorted(path.rglob("*"))
    for mode, after in (("append", [*range(20), *range(20, 40)]), ("overwrite", [*range(20, 40)])):
        (tmp_path / "refuse").touch()
        with pytest.raises(PySparkException, match="No space is left"):
            write(20, 40, mode)
        assert sorted(path.rglob("*")) == before, "the old files, _SUCCESS, and nothing else"
        (tmp_path / "refuse").unlink()
        write(20, 40, mode)
        assert ids() == after
        before = sorted(path.rglob("*"))
