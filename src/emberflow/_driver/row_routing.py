"""The rows of a run: which DataFrames there are, and how each row finds its rank.

Every row gets a key before the exchange (`KEY`): what must repeat in a later run, orders and positions, rests on
it, since a shuffle delivers rows in another order each time. The rank follows from the key, so it repeats too.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from emberflow._driver.paths import resolve_path
from emberflow._driver.spark_versions import BATCHES_BY_BYTES, REPARTITION_BY_ID, offers
from emberflow._feed.arrays import KEY, RESERVED
from emberflow._feed.file_source import FileSource
from emberflow._plan.partition_keys import keys_of_partitions
from emberflow._plan.stages import Stage
from emberflow._task.row_writer import DataSpec
from emberflow.config import RunConfig
from emberflow.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Source = TypeVar("Source", bound=FileSource)

RANK = "__ef_rank"
TRAIN = "train"
ROW_BITS = 33  # monotonically_increasing_id: the partition above these bits, the row within it below

BATCH_BYTES, BATCH_ROWS = (
    "spark.sql.execution.arrow.maxBytesPerBatch",
    "spark.sql.execution.arrow.maxRecordsPerBatch",
)
WIDE_ROWS = 1000  # in a batch, where Spark does not count bytes


@dataclass(frozen=True, kw_only=True)
class RunData:
    """What a run is fed with, by name.

    Attributes:
        frames: DataFrames, whose rows travel in the stage that trains.
        files: Sources that the nodes read themselves.
    """

    frames: "Mapping[str, DataFrame]" = field(default_factory=dict)
    files: Mapping[str, FileSource] = field(default_factory=dict)

    @property
    def session(self) -> "SparkSession | None":
        """The session of the DataFrames, if there are any."""
        for frame in self.frames.values():
            return frame.sparkSession
        return None


def read_data(data: Any) -> RunData:
    """Return what the user passed as `data`, checked: a DataFrame, a file source, or a dict of them."""
    if data is None:
        return RunData()
    named = data if isinstance(data, Mapping) else {TRAIN: data}
    frames: dict[str, Any] = {}
    files: dict[str, FileSource] = {}
    for name, source in named.items():
        _check_name(name)
        kind = type(source)  # not the object: a DataFrame of Spark Connect has every attribute, as a column
        if hasattr(kind, "fragments"):
            files[name] = source
        elif hasattr(kind, "mapInArrow"):
            _check_frame(name, source)
            frames[name] = source
        else:
            raise ConfigError(
                "`data` must be a DataFrame, ef.Parquet(...), ef.TFRecords(...), or a dict of these by name. "
                f"Received: data[{name!r}]={source!r}.",
                fix="Pass data=df, or data={'train': df, 'validation': other}.",
            )
    return RunData(frames=frames, files=files)


def with_resolved_files(spark: "SparkSession | None", data: RunData) -> RunData:
    """Return the data with the paths of file sources resolved."""
    return replace(
        data, files={name: with_resolved_path(spark, source) for name, source in data.files.items()}
    )


def with_resolved_path(spark: "SparkSession | None", source: Source) -> Source:
    """Return a file source with its path resolved; a source of your own resolves its paths itself."""
    if not hasattr(source, "with_resolved_path"):
        return source
    resolved: Source = source.with_resolved_path(functools.partial(resolve_path, spark))
    return resolved


def data_spec(data: RunData, config: RunConfig) -> DataSpec:
    """Return what the tasks receive; files are listed here once, so that all ranks see the same.

    Args:
        data: What there is.
        config: The options of the run.
    """
    if not config.cache and len(data.frames) + len(data.files) != 1:
        raise ConfigError(
            "cache=False streams one DataFrame or file source through once. "
            f"Received: {len(data.frames) + len(data.files)} of them.",
            fix="Pass data=df alone, or leave cache=False out.",
        )
    files = {name: (source, tuple(source.fragments())) for name, source in data.files.items()}
    return DataSpec(
        frames=tuple(data.frames),
        files=files,
        cache=config.cache,
        spool_dir=config.spool_dir,
        spool_limit=config.spool_limit,
    )


def directed_rows(data: RunData, stage: Stage, trainers: int) -> "DataFrame":
    """Return the rows of all frames in one DataFrame of one partition per rank; only trainers get any.

    A single frame keeps its columns; several become one nullable struct column each.
    """
    from pyspark.sql import functions as F

    if len(data.frames) == 1:
        (frame,) = data.frames.values()
        with_keys = frame.withColumn(KEY, F.monotonically_increasing_id())
        return _by_rank(with_keys, stage.ranks, _rank_of(F.col(KEY), trainers))
    parts = []
    for name, frame in data.frames.items():
        with_keys = frame.withColumn(KEY, F.monotonically_increasing_id())
        columns = [F.col(quoted(column)) for column in frame.columns]
        rank = _rank_of(F.col(KEY), trainers).alias(RANK)
        parts.append(with_keys.select(F.struct(*columns).alias(name), F.col(KEY), rank))
    union = functools.reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)
    return _by_rank(union, stage.ranks, F.col(RANK)).drop(RANK)


def _by_rank(frame: "DataFrame", ranks: int, rank: "Column") -> "DataFrame":
    """Return the rows in one partition per rank, that of its number."""
    from pyspark.sql import functions as F

    if offers(frame.sparkSession, REPARTITION_BY_ID):
        return frame.repartitionById(ranks, rank)
    keys = F.array(*map(F.lit, keys_of_partitions(ranks)))
    return frame.repartition(ranks, F.element_at(keys, rank + 1).cast("int"))  # a long has another hash


def _rank_of(key: "Column", trainers: int) -> "Column":
    """Deal the rows of each source partition round to all ranks, each beginning at another."""
    from pyspark.sql import functions as F

    row = key.bitwiseAND(F.lit((1 << ROW_BITS) - 1))
    return F.pmod(row + F.shiftright(key, ROW_BITS), F.lit(trainers)).cast("int")


def _batch_settings(spark: "SparkSession") -> dict[str, str]:
    """Return the size of batches: bytes, not rows, if this Spark can count them."""
    if offers(spark, BATCHES_BY_BYTES):
        # 1000 rows of 784 floats, 30 images of 100 KB, tens of thousands of narrow rows.
        return {BATCH_BYTES: str(3 * 1024 * 1024), BATCH_ROWS: "100000"}
    given = int(spark.conf.get(BATCH_ROWS) or 0)
    return {BATCH_ROWS: str(given if 0 < given < WIDE_ROWS else WIDE_ROWS)}


class SessionSettings:
    """Settings of sessions that several runs need at the same time: the first sets them, the last puts them back."""

    def __init__(self, settings: "Callable[[SparkSession], Mapping[str, str]]") -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._users: dict[int, int] = {}
        self._before: dict[int, dict[str, str | None]] = {}

    @contextlib.contextmanager
    def applied(self, spark: "SparkSession") -> Iterator[None]:
        """Apply the settings for the length of the block."""
        session = id(spark)
        with self._lock:
            if not self._users.get(session):
                settings = self._settings(spark)
                self._before[session] = {name: spark.conf.get(name, None) for name in settings}
                for name, value in settings.items():
                    spark.conf.set(name, value)
            self._users[session] = self._users.get(session, 0) + 1
        try:
            yield
        finally:
            with self._lock:
                self._users[session] -= 1
                if not self._users[session]:
                    for name, before in self._before.pop(session).items():
                        spark.conf.unset(name) if before is None else spark.conf.set(name, before)


ARROW_BATCHES = SessionSettings(
    _batch_settings
)  # one for the process: runs in several threads share a session


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name or "." in name or name.startswith(RESERVED):
        raise ConfigError(
            f"Names in `data` must be words without dots. Received: {name!r}.",
            fix="Name them like data={'train': df, 'validation': other}.",
        )


def _check_frame(name: str, frame: Any) -> None:
    if frame.isStreaming:
        raise ConfigError(
            f"`run` takes DataFrames that end. Received: data[{name!r}] is a stream.",
            fix="Use foreachBatch and run on each batch, or write the stream to files first.",
        )
    repeated = {column for column in frame.columns if frame.columns.count(column) > 1}
    reserved = {column for column in frame.columns if column.startswith(RESERVED)}
    if repeated or reserved:
        raise ConfigError(
            f"Columns must have different names, none beginning with {RESERVED!r}. "
            f"Received: data[{name!r}] with {sorted(repeated | reserved)}.",
            fix="Rename the columns: df.withColumnRenamed(...), or df.toDF(...).",
        )


def quoted(column: str) -> str:
    """Return a column's name as Spark takes it whatever is in it, dots included."""
    return "`" + column.replace("`", "``") + "`"
