"""What your function replies to a request, as one record batch: arrays become columns of types that Spark has."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from emberflow._feed.numpy_to_arrow import arrow_lists
from emberflow.errors import DataError

PREDICTION = "prediction"  # the column of a result without a name


def reply_batch(result: Any) -> Any:
    """Return the result as a record batch.

    >>> reply_batch(np.array([[1.0, 2.0], [3.0, 4.0]])).to_pylist()
    [{'prediction': [1.0, 2.0]}, {'prediction': [3.0, 4.0]}]
    """
    if isinstance(result, pa.RecordBatch):
        return result
    if isinstance(result, pa.Table):
        return _whole(result)
    if not isinstance(result, Mapping):
        result = {PREDICTION: result}
    columns = {str(name): _column(str(name), values) for name, values in result.items()}
    sizes = {name: len(column) for name, column in columns.items()}
    if not sizes or len({*sizes.values()}) > 1:
        raise DataError(
            f"All columns of a reply must have the same number of rows. Received: {sizes}.",
            fix="Reply with an array, or with a dict of arrays that have one value for each row of the request.",
        )
    return pa.RecordBatch.from_pydict(columns)


def _whole(table: Any) -> Any:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _column(name: str, values: Any) -> Any:
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, pa.ChunkedArray):
        return pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    try:
        if isinstance(values, list | tuple):
            return pa.array(values)  # rows of different lengths too
        array = np.asarray(values)
        if not array.ndim:
            raise TypeError("one value")
        return arrow_lists(array)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(
            f"Column {name!r} of a reply must be an array with one value per row. "
            f"Received: {type(values).__name__} ({error}).",
            fix="Reply with numpy arrays, tensors, lists or Arrow arrays.",
        ) from error
