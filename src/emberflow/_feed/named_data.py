"""Several named DataFrames in one stream of record batches.

A row of the stream belongs to one of them: the struct column of that name holds it, and those of the other
names are null. This costs nothing measurable, and one Spark stage delivers all of them.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from emberflow._feed.arrays import KEY


def split_named(batch: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return the rows of each name as a record batch of its own columns and the key; names without rows are absent.

    >>> rows = pa.array([{"x": 1}, None], pa.struct({"x": pa.int64()}))
    >>> other = pa.array([None, {"y": "b"}], pa.struct({"y": pa.string()}))
    >>> batch = pa.RecordBatch.from_pydict({KEY: [7, 8], "train": rows, "validation": other})
    >>> {name: part.to_pylist() for name, part in split_named(batch, ["train", "validation"]).items()}
    {'train': [{'__ef_key': 7, 'x': 1}], 'validation': [{'__ef_key': 8, 'y': 'b'}]}
    """
    parts = {name: _rows_of(batch, name) for name in names}
    return {name: part for name, part in parts.items() if part.num_rows}


def _rows_of(batch: Any, name: str) -> Any:
    structs, keys = batch.column(name), batch.column(KEY)
    if structs.null_count:  # a batch comes from one partition, and so mostly from one name
        valid = structs.is_valid()
        structs, keys = structs.filter(valid), keys.filter(valid)
    fields = [pa.field(KEY, keys.type), *structs.type]
    columns = [keys, *(structs.field(index) for index in range(structs.type.num_fields))]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
