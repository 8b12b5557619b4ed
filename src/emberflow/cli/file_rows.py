"""`--input-mode files`: files that nodes and tasks read themselves, without Spark's readers."""

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from emberflow.cli.spark_files import format_of
from emberflow.errors import ConfigError
from emberflow.storage import StorageSettings, apply_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from emberflow._feed.file_source import Fragment
    from emberflow._feed.parquet import Parquet
    from emberflow.tfrecord.tfrecords import TFRecords

    Files = Parquet | TFRecords

SPARK, FILES = INPUT_MODES = ("spark", "files")
READ = ("tfrecord", "parquet")


def check_input_mode(mode: str) -> None:
    """Refuse an input mode that does not exist."""
    if mode not in INPUT_MODES:
        raise ConfigError(
            f"The input mode must be one of {', '.join(INPUT_MODES)}. Received: input-mode={mode!r}.",
            fix="Pass --input-mode spark to let Spark read the rows, --input-mode files to let the nodes do it.",
        )


def source_of(path: str, source_format: str | None, columns: Sequence[str] | None = None) -> "Files":
    """Return files of rows that a node can read, with these columns or all."""
    chosen = source_format or format_of(path)
    if chosen not in READ:
        raise ConfigError(
            f"Nodes read {' and '.join(READ)} files themselves. Received: {path!r} of format {chosen}.",
            fix=f"emberflow convert {path} OUT.tfrecord, or pass --input-mode spark.",
        )
    if chosen == "tfrecord":
        from emberflow.tfrecord.tfrecords import TFRecords

        return TFRecords(path, features=columns)
    from emberflow._feed.parquet import Parquet

    return Parquet(path, columns=columns)


def rows_from_files(spark: "SparkSession", source: "Files", tasks: int | None = None) -> "DataFrame":
    """Return rows that so many tasks read, each its own share of the files; by default a task for each piece."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from emberflow._driver.interpreter import map_in_arrow
    from emberflow._driver.paths import resolve_path
    from emberflow._driver.storage_settings import storage_settings_of

    settings = storage_settings_of(spark)
    source = source.with_resolved_path(functools.partial(resolve_path, spark))
    fragments = tuple(source.fragments())
    count = tasks or max(1, len(fragments))
    read = functools.partial(_read_share, settings, source, fragments, count)
    return map_in_arrow(spark.range(0, count, 1, count), read, from_arrow_schema(source.schema))


def _read_share(
    settings: StorageSettings,
    source: "Files",
    fragments: "tuple[Fragment, ...]",
    tasks: int,
    batches: Iterator[Any],
) -> Iterator[Any]:
    from emberflow._feed.file_source import rank_batches

    apply_settings(settings)
    for batch in batches:
        for task in batch.column(0).to_pylist():
            for rows in rank_batches(source, task, tasks, fragments):
                yield rows.drop_columns(rows.schema.names[0])  # the key
