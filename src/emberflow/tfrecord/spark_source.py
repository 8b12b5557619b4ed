"""Spark's data source ``tfrecord``: the methods that Spark calls."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.types import StructType

from emberflow._driver.paths import path_rules_of
from emberflow._driver.storage_settings import storage_settings_of
from emberflow._plan.path_rules import PathRules
from emberflow.errors import ClusterError, ConfigError
from emberflow.storage import StorageSettings, apply_settings
from emberflow.tfrecord.data_source_api import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    InputPartition,
)
from emberflow.tfrecord.input_files import FilePart, InputFile, find_files, split_files, split_list
from emberflow.tfrecord.options import Options, parse_options
from emberflow.tfrecord.part_reader import infer_schema, make_plan, read_parts
from emberflow.tfrecord.spark_types import arrow_schema, key_types, spark_schema

if TYPE_CHECKING:
    from emberflow.tfrecord.data_source_api import DataSourceStreamReader, DataSourceWriter


class TFRecordSource(DataSource):
    """``spark.read.format("tfrecord")`` and ``df.write.format("tfrecord")``.

    Spark plans with it in a process without a session. Attributes are set by `register`, which knows the session;
    otherwise the files of HADOOP_CONF_DIR say where paths are.

    Attributes:
        session_paths: Which URLs the session means by paths without a scheme.
        session_storage: Hadoop's settings of the session.
    """

    session_paths: PathRules | None = None
    session_storage: StorageSettings = StorageSettings()

    @classmethod
    def name(cls) -> str:
        """Return the name after ``format``."""
        return "tfrecord"

    def schema(self) -> StructType:
        """Return the schema inferred from some of the records."""
        options = self._reading()
        files = find_files(options)
        schema = spark_schema(infer_schema(files, options), files, options)
        missing = [name for name in options.columns if name not in schema.fieldNames()]
        if missing:
            raise ConfigError(
                f"Option 'columns' names features that were not found. Received: {missing}.",
                fix=f"Name some of {schema.fieldNames()}, sample more records (samplingRatio), or pass a schema.",
            )
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        return TFRecordReader(schema, self._reading())

    def streamReader(self, schema: StructType) -> "DataSourceStreamReader":  # noqa: N802 - Spark's name
        """Return the reader of a streaming query."""
        from emberflow.tfrecord.spark_streaming import TFRecordStreamReader

        return TFRecordStreamReader(schema, self._reading())

    def writer(self, schema: StructType, overwrite: bool) -> "DataSourceWriter":
        """Return the writer of a batch query."""
        from emberflow.tfrecord.spark_writer import TFRecordWriter

        return TFRecordWriter(schema, self._writing(), overwrite=overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return the writer of a streaming query."""
        if DataSourceStreamArrowWriter is DataSourceStreamWriter:
            raise ClusterError(
                f"Writing a stream as TFRecord needs Spark 4.1 or newer. Received: Spark {pyspark.__version__}.",
                fix="Write each micro-batch by stream.writeStream.foreachBatch(lambda rows, number: "
                'ef.tfrecord.write(rows, f"{path}/batch={number}", mode="overwrite")).',
            )
        from emberflow.tfrecord.spark_streaming import TFRecordStreamWriter

        return TFRecordStreamWriter(schema, self._writing(), overwrite=overwrite)

    def _reading(self) -> Options:
        """Return the options of a read: each path may be a comma list."""
        return self._resolved(split_list)

    def _writing(self) -> Options:
        """Return the options of a write: the path is one folder."""
        return self._resolved(lambda path: [path])

    def _resolved(self, split: Callable[[str], list[str]]) -> Options:
        """Return the options with resolved paths; from now on this process opens URLs with the session's settings."""
        options = parse_options(self.options)
        rules = self.session_paths or path_rules_of(None)
        own = storage_settings_of(None).hadoop
        settings = StorageSettings(hadoop={**own, **self.session_storage.hadoop})
        apply_settings(settings)
        paths = tuple(rules.resolve(path) for given in options.paths for path in split(given))
        return replace(options, paths=paths, storage=settings)


class TFRecordsSource(TFRecordSource):
    """The same under the name of the older connector."""

    @classmethod
    def name(cls) -> str:
        """Return the name after ``format``."""
        return "tfrecords"


class PartsPartition(InputPartition):
    """The parts of files that one task reads."""

    def __init__(self, parts: Sequence[FilePart]) -> None:
        super().__init__(None)
        self.parts = tuple(parts)


class TFRecordReader(DataSourceReader):
    """Reads files in a batch query."""

    def __init__(self, schema: StructType, options: Options) -> None:
        self._schema = schema
        self._options = options
        make_plan(
            arrow_schema(schema), options, list(key_types(find_files(options)))
        )  # so that errors occur on the driver

    def partitions(self) -> list[InputPartition]:
        """Return one partition per task."""
        return partitions_for(find_files(self._options), self._options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of one task as Arrow batches."""
        return read_partition(partition, self._schema, self._options)


def partitions_for(files: Sequence[InputFile], options: Options) -> list[InputPartition]:
    """Return the tasks that read some files."""
    return [PartsPartition(parts) for parts in split_files(files, options)]


def read_partition(partition: InputPartition, schema: StructType, options: Options) -> Iterator[Any]:
    """Yield the rows of one task as Arrow batches."""
    parts = (
        partition.parts if isinstance(partition, PartsPartition) else ()
    )  # Spark's own partition, where there is no file
    apply_settings(options.storage)
    keys = {key for part in parts for key in part.file.keys}
    return read_parts(parts, make_plan(arrow_schema(schema), options, sorted(keys)), options)
