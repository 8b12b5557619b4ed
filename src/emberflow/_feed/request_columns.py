"""Columns of a record batch as numpy arrays, for requests: whole columns at a time."""

from collections.abc import Sequence
from typing import Any

from emberflow._feed.arrays import find_leaf_columns, leaf_columns
from emberflow._feed.arrow_to_numpy import flat_arrays_of
from emberflow._feed.shard_facts import ShardFacts, observe
from emberflow._feed.shards import Nulls, Shards
from emberflow._feed.tensor_columns import ColumnOptions, plan_columns
from emberflow.errors import DataError


def columns_of(batch: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return columns by name; lists of equal length become further dimensions.

    >>> import pyarrow as pa
    >>> columns_of(pa.RecordBatch.from_pydict({"x": [[1.0, 2.0], [3.0, 4.0]]}), ["x"])["x"].shape
    (2, 2)
    """
    leaves = list(leaf_columns(batch.schema))
    wanted = [leaf.name for name in names for leaf in find_leaf_columns(leaves, name)]
    if not batch.num_rows:
        raise DataError(
            "A request must have rows. Received: an empty batch.",
            fix="Check that driver and executors run the same version of emberflow.",
        )
    arrays = {}
    for name, column in plan_columns(_facts(batch), ColumnOptions(), wanted).items():
        values, *splits = flat_arrays_of(column, column.leaf.array_in(batch))
        if splits:
            raise DataError(
                f"Lists of column {name!r} must have one length in a request. Received: lists of several lengths.",
                fix="Use request.batch, which is an Arrow record batch, for columns of any length.",
            )
        arrays[name] = values
    return arrays


def _facts(batch: Any) -> Shards:
    columns = observe(batch)
    nulls = {
        name: Nulls(ranks=1, first=((0, facts.nulls, facts.inner_nulls),))
        for name, facts in columns.items()
        if facts.nulls or facts.inner_nulls
    }
    each = (ShardFacts(rows=batch.num_rows),)
    return Shards(each=each, schema=batch.schema, columns=columns, nulls=nulls)
