"""Numpy arrays to Arrow arrays of types that Spark has."""

from typing import Any

import numpy as np
import pyarrow as pa

# Spark has neither unsigned numbers nor half precision.
_WIDER = {
    "uint8": "int16",
    "uint16": "int32",
    "uint32": "int64",
    "uint64": "int64",
    "float16": "float32",
    "bfloat16": "float32",
}


def arrow_lists(array: Any) -> Any:
    """Return an array of rows; each dimension beyond the first becomes a level of lists.

    >>> arrow_lists(np.zeros((2, 3), np.uint8)).type
    ListType(list<item: int16>)
    """
    flat = np.ascontiguousarray(array).reshape(-1)
    wider = _WIDER.get(str(flat.dtype))
    values = pa.array(flat.tolist() if flat.dtype.kind in "OSU" else flat.astype(wider) if wider else flat)
    for level in range(array.ndim - 1, 0, -1):
        rows = int(np.prod(array.shape[:level]))
        offsets = np.arange(rows + 1, dtype=np.int32) * array.shape[level]
        values = pa.ListArray.from_arrays(pa.array(offsets), values)
    return values
