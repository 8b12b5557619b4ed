"""What runs inside the tasks that feed a live cluster with an RDD, or ask it: Python objects become Arrow here."""

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from emberflow._feed.arrays import KEY
from emberflow._feed.python_rows import record_batches
from emberflow._task.feeding_task import RoundTask, StreamTask, bring_partition, bring_shard
from emberflow._task.inference_task import InferenceTask, replies
from emberflow.errors import DataError

ROW_BITS = (
    33  # of a key: the row within its partition; the partition is above, as Spark numbers rows of DataFrames
)


@dataclass(frozen=True, kw_only=True)
class RddRows:
    """The rows of one RDD, as its tasks receive them.

    Attributes:
        name: Its name.
        schemas: The Arrow schemas of all RDDs of the round by name, serialized.
    """

    name: str
    schemas: tuple[tuple[str, bytes], ...]

    @functools.cached_property
    def schema(self) -> Any:
        """The Arrow schema of these rows."""
        return pa.ipc.read_schema(pa.py_buffer(dict(self.schemas)[self.name]))

    @functools.cached_property
    def shuffled(self) -> Any:
        """The Arrow schema of the rows of all RDDs together, with keys; see `_feed/named_data.py`."""
        key = pa.field(KEY, pa.int64())
        if len(self.schemas) == 1:
            return pa.schema([*self.schema, key])
        known = {name: pa.ipc.read_schema(pa.py_buffer(data)) for name, data in self.schemas}
        return pa.schema([*(pa.field(name, pa.struct(list(each))) for name, each in known.items()), key])


Part = tuple[int, bytes | DataError]  # a rank, and a record batch for it, or why there is none


def split_rows(rows: RddRows, ranks: int, partition: int, values: Iterable[Any]) -> Iterator[Part]:
    """Yield record batches for each rank: few large objects, which Spark shuffles at little cost.

    Rows that cannot be converted are told to the first rank: were it raised here, Spark would try them again.
    """
    try:
        yield from _parts(rows, ranks, partition, values)
    except DataError as error:
        yield 0, error


def _parts(rows: RddRows, ranks: int, partition: int, values: Iterable[Any]) -> Iterator[Part]:
    before = 0
    for batch in record_batches(values, rows.schema):
        keyed = _with_keys(rows, batch, (partition << ROW_BITS) + before)
        for rank in range(ranks):
            # Rows of each partition are dealt round to all ranks, each beginning at another, as those of DataFrames.
            first = (rank - before - partition) % ranks
            if first < batch.num_rows:
                part = keyed.take(pa.array(np.arange(first, batch.num_rows, ranks)))
                yield rank, part.serialize().to_pybytes()
        before += batch.num_rows


def _with_keys(rows: RddRows, batch: Any, start: int) -> Any:
    keys = pa.array(np.arange(start, start + batch.num_rows, dtype=np.int64))
    if len(rows.schemas) == 1:
        return pa.RecordBatch.from_arrays([*batch.columns, keys], schema=rows.shuffled)
    columns = [
        pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
        if field.name == rows.name
        else pa.nulls(batch.num_rows, field.type)
        for field in list(rows.shuffled)[:-1]
    ]
    return pa.RecordBatch.from_arrays([*columns, keys], schema=rows.shuffled)


def feed_round_of_rows(
    task: RoundTask, rows: RddRows, place: int, parts: Iterable[Part]
) -> Iterator[dict[str, Any]]:
    """Bring the rows of one rank, after the shuffle, to its node."""
    yield bring_shard(task, place, (_batch(rows, part) for _, part in parts))


def _batch(rows: RddRows, part: bytes | DataError) -> Any:
    if isinstance(part, DataError):
        raise part
    return pa.ipc.read_record_batch(pa.py_buffer(part), rows.shuffled)


def feed_partition_of_rows(
    task: StreamTask, rows: RddRows, _: int, values: Iterable[Any]
) -> Iterator[dict[str, Any]]:
    """Bring one partition of an RDD to the best node."""
    error = bring_partition(task, record_batches(values, rows.schema))
    if error:
        yield {"error": error}


def infer_values(task: InferenceTask, rows: RddRows, _: int, values: Iterable[Any]) -> Iterator[Any]:
    """Yield one result per row, in the order of the rows: a value, or a dict where there are several columns."""
    for _rows, results in replies(task, record_batches(values, rows.schema)):
        yield from (results.column(0) if results.num_columns == 1 else results).to_pylist()
