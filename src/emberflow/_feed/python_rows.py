"""Rows of Python objects as record batches, a column at a time: the rows of an RDD.

A row is a tuple, a list, a named tuple, Spark's Row, a dict, or one value. Columns are named as Spark names them: by
their fields, else ``_1``, ``_2``; "value" for one value.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from emberflow._feed.numpy_to_arrow import arrow_lists
from emberflow.errors import DataError

VALUE = "value"
BATCH_BYTES = 3 << 20  # of a record batch, as Spark cuts those of DataFrames here
FIRST_ROWS = 64  # of the first batch, which tells how large rows are
MOST_ROWS = 65536

Rows = Sequence[Any]
Columns = Callable[[Rows], Sequence[Sequence[Any]]]


def schema_of_rows(rows: Rows) -> Any:
    """Return the Arrow schema of some rows: that of all rows of the same data.

    >>> schema_of_rows([(1, [0.5, 2.0])]).names
    ['_1', '_2']
    """
    names = _names(rows[0])
    arrays = [
        _array(name, values, None) for name, values in zip(names, _columns(rows[0], names)(rows), strict=True)
    ]
    unknown = [name for name, array in zip(names, arrays, strict=True) if _has_null_type(array.type)]
    if unknown:
        raise DataError(
            f"The first rows must tell the type of each column. Received: only nulls in {', '.join(unknown)}, in "
            f"{len(rows)} rows.",
            fix="Pass a DataFrame with a schema, or fill the nulls.",
        )
    return pa.schema([pa.field(name, array.type) for name, array in zip(names, arrays, strict=True)])


def record_batches(rows: Iterable[Any], schema: Any) -> Iterator[Any]:
    """Yield all rows as record batches of this schema, of some megabytes each."""
    source = iter(rows)
    size = FIRST_ROWS
    columns: Columns | None = None
    while held := list(islice(source, size)):
        columns = columns or _columns(held[0], schema.names)
        batch = pa.RecordBatch.from_arrays(_arrays(held, columns, schema), schema=schema)
        yield batch
        size = min(MOST_ROWS, max(1, BATCH_BYTES * batch.num_rows // max(1, batch.nbytes)))


def _arrays(rows: Rows, columns: Columns, schema: Any) -> list[Any]:
    try:
        found = columns(rows)
    except (TypeError, ValueError, KeyError) as error:
        raise DataError(
            f"All rows must have the columns {', '.join(schema.names)}. Received: {error}.",
            fix="Give all rows the same form and number of values.",
        ) from error
    if len(found) != len(schema):
        raise DataError(
            f"All rows must have {len(schema)} values. Received: {len(found)}.",
            fix="Give all rows the same form and number of values.",
        )
    return [_array(field.name, values, field.type) for field, values in zip(schema, found, strict=True)]


def _names(row: Any) -> list[str]:
    fields = getattr(row, "__fields__", None) or getattr(row, "_fields", None)
    if isinstance(row, tuple) and fields:
        return list(fields)
    if isinstance(row, dict):
        return sorted(row)
    if isinstance(row, tuple | list):
        return [f"_{number}" for number in range(1, len(row) + 1)]
    return [VALUE]


def _columns(row: Any, names: Sequence[str]) -> Columns:
    """Return what divides rows of this form into columns."""
    if isinstance(row, dict):
        return lambda rows: [[each.get(name) for each in rows] for name in names]
    if isinstance(row, tuple | list):
        return lambda rows: list(zip(*rows, strict=True))
    return lambda rows: [rows]


def _array(name: str, values: Sequence[Any], kind: Any) -> Any:
    """Return the values of one column as an Arrow array."""
    first = next((value for value in values if value is not None), None)
    try:
        if hasattr(first, "toArray"):  # Spark ML's vectors
            values = [None if value is None else value.toArray() for value in values]
            first = values[0]
        if isinstance(first, np.ndarray) and first.ndim:
            return _of_arrays(values, kind)
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"Column {name!r} must have values of one type{f' ({kind})' if kind else ''}, as in the first rows. "
            f"Received: {error}.",
            fix="Convert the values before you pass the RDD, or pass a DataFrame with a schema.",
        ) from error


def _of_arrays(values: Sequence[Any], kind: Any) -> Any:
    if all(value is not None and value.shape == values[0].shape for value in values):
        array = arrow_lists(np.stack(values))
    else:
        array = pa.array([None if value is None else value.tolist() for value in values], kind)
    return array if kind is None or array.type == kind else array.cast(kind)


def _has_null_type(kind: Any) -> bool:
    while pa.types.is_list(kind):
        kind = kind.value_type
    return bool(pa.types.is_null(kind))
