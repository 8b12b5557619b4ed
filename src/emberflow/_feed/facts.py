"""What a shard knows of itself, small enough to be told to every rank before training starts.

The tensors of all ranks must have one shape, whatever rows each of them holds; so the lengths of lists, the
number of nulls and the schema are looked at while the rows are written, and agreed from all ranks.
"""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from emberflow._feed.arrays import is_bytes, is_list, is_vector, leaves_of, offsets_of, plain, valid_rows
from emberflow.errors import DataError

Length = tuple[int, int]  # least and most; (1, 0) where nothing was seen yet
UNSEEN: Length = (1, 0)


@dataclass(frozen=True, kw_only=True)
class ColumnFacts:
    """What was seen of one column.

    Attributes:
        nulls: Rows that are null.
        inner_nulls: Nulls inside the lists of the rows.
        sparse: Rows that are sparse Spark ML vectors.
        lengths: Least and most elements of a row, from the outermost list to the innermost; of a
            binary value its bytes, of a vector its size.
    """

    nulls: int = 0
    inner_nulls: int = 0
    sparse: int = 0
    lengths: tuple[Length, ...] = ()

    def __add__(self, other: "ColumnFacts") -> "ColumnFacts":
        return ColumnFacts(
            nulls=self.nulls + other.nulls,
            inner_nulls=self.inner_nulls + other.inner_nulls,
            sparse=self.sparse + other.sparse,
            lengths=tuple(map(_widen, self.lengths, other.lengths)) or self.lengths or other.lengths,
        )


@dataclass(frozen=True, kw_only=True)
class ShardFacts:
    """What every rank is told of one shard.

    Attributes:
        rows: How many it has.
        bytes: The size of its spool.
        digest: The same for the same rows in any order.
        schema: The Arrow schema of the rows, or None where no batch came.
        columns: Facts by dotted column name.
    """

    rows: int = 0
    bytes: int = 0
    digest: str = ""
    schema: Any = None
    columns: Mapping[str, ColumnFacts] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the facts as one line of text."""
        schema = "" if self.schema is None else base64.b64encode(self.schema.serialize()).decode()
        columns = {
            name: [facts.nulls, facts.inner_nulls, facts.sparse, facts.lengths]
            for name, facts in self.columns.items()
        }
        return json.dumps([self.rows, self.bytes, self.digest, schema, columns], separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "ShardFacts":
        """Return the facts that `to_json` wrote."""
        rows, size, digest, schema, columns = json.loads(text)
        return cls(
            rows=rows,
            bytes=size,
            digest=digest,
            schema=pa.ipc.read_schema(pa.py_buffer(base64.b64decode(schema))) if schema else None,
            columns={
                name: ColumnFacts(
                    nulls=nulls, inner_nulls=inner, sparse=sparse, lengths=tuple((a, b) for a, b in lengths)
                )
                for name, (nulls, inner, sparse, lengths) in columns.items()
            },
        )


def observe(batch: Any) -> dict[str, ColumnFacts]:
    """Return the facts of one record batch."""
    return {leaf.name: _observe_column(leaf.of(batch)) for leaf in leaves_of(batch.schema)}


def add_facts(parts: Iterable[Mapping[str, ColumnFacts]]) -> dict[str, ColumnFacts]:
    """Return the facts of all parts together."""
    total: dict[str, ColumnFacts] = {}
    for part in parts:
        for name, facts in part.items():
            total[name] = total[name] + facts if name in total else facts
    return total


def agreed_schema(shards: Sequence[ShardFacts]) -> Any:
    """Return the schema that all ranks hold; ranks without rows may not know it."""
    schemas = [shard.schema for shard in shards if shard.schema is not None]
    if not schemas:
        raise DataError(
            f"At least one row is needed. Received: 0 rows over {len(shards)} workers.",
            fix="Check the DataFrame's filters and joins: df.count() should be above 0.",
        )
    for schema in schemas:
        if not schema.equals(schemas[0]):
            raise DataError(
                f"All workers must hold the same columns. Received: {schemas[0]} and {schema}.",
                fix="Give all files of one source the same columns and types.",
            )
    return schemas[0]


def _widen(one: Length, other: Length) -> Length:
    if UNSEEN in (one, other):
        return other if one == UNSEEN else one
    return min(one[0], other[0]), max(one[1], other[1])


def _observe_column(array: Any) -> ColumnFacts:
    array = plain(array)
    if is_vector(array.type):
        return _observe_vector(array)
    lengths, inner = [], 0
    nulls = array.null_count
    for level, length in enumerate(_lengths(array)):
        lengths.append(length[0])
        inner += length[1] if level else 0
    return ColumnFacts(nulls=nulls, inner_nulls=inner, lengths=tuple(lengths))


def _lengths(array: Any) -> Iterator[tuple[Length, int]]:
    """Yield for each level its lengths, and the nulls among its rows."""
    while is_list(array.type):
        yield _length(array), array.null_count
        array = plain(array.flatten())
    if is_bytes(array.type):
        yield _length(array), array.null_count
    elif array.null_count:
        yield UNSEEN, array.null_count


def _length(array: Any) -> Length:
    sizes = np.diff(offsets_of(array))
    valid = valid_rows(array)
    if valid is not None:
        sizes = sizes[valid]
    return (int(sizes.min()), int(sizes.max())) if len(sizes) else UNSEEN


def _observe_vector(array: Any) -> ColumnFacts:
    vectors = array.drop_null() if array.null_count else array
    kinds = np.asarray(vectors.field("type"))
    sparse = int((kinds == 0).sum())
    sizes = np.where(
        kinds == 0, vectors.field("size").fill_null(0), np.diff(offsets_of(vectors.field("values")))
    )
    length = (int(sizes.min()), int(sizes.max())) if len(sizes) else UNSEEN
    return ColumnFacts(nulls=array.null_count, sparse=sparse, lengths=(length,))
