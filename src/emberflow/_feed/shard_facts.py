"""The facts of a shard that all ranks need before training starts.

The tensors of all ranks must have one shape, whatever rows a rank holds. So the lengths of lists, the number of nulls
and the schema are recorded while the rows are written, and merged over all ranks (`shards`).
"""

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from emberflow._feed.arrays import (
    is_bytes,
    is_list,
    is_vector,
    leaf_columns,
    normalized,
    offsets_of,
    valid_rows,
)

Length = tuple[int, int]  # minimum and maximum; (1, 0) where no row was seen yet
UNSEEN: Length = (1, 0)

Brief = Sequence[Any]
"""Rows, bytes and digest of a shard; the digests of its schema and of its columns' facts, "" without a batch."""


@dataclass(frozen=True, kw_only=True)
class ColumnFacts:
    """The facts of one column.

    Attributes:
        nulls: Rows that are null.
        inner_nulls: Nulls inside the lists of the rows.
        sparse: Rows that are sparse Spark ML vectors.
        lengths: Minimum and maximum number of elements of a row, from the outermost list to the innermost; of a
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
            lengths=tuple(map(widen, self.lengths, other.lengths)) or self.lengths or other.lengths,
        )


@dataclass(frozen=True, kw_only=True)
class ShardFacts:
    """The facts of one shard.

    Attributes:
        rows: The number of its rows.
        bytes: The size of its spool.
        digest: Digest of its rows, independent of their order.
        schema: The Arrow schema of the rows, or None where there was no batch.
        columns: Facts by dotted column name.
    """

    rows: int = 0
    bytes: int = 0
    digest: str = ""
    schema: Any = None
    columns: Mapping[str, ColumnFacts] = field(default_factory=dict)

    def brief(self) -> Brief:
        """Return a short summary of the shard; `blobs` has the content of its digests."""
        schema = "" if self.schema is None else _schema_digest(self.schema)
        columns = _digest(_columns_text(self.columns)) if self.columns else ""
        return [self.rows, self.bytes, self.digest, schema, columns]

    def blobs(self) -> dict[str, str]:
        """Return the schema and the facts of columns, compressed, by the digests of the brief."""
        found = {}
        if self.schema is not None:
            found[_schema_digest(self.schema)] = packed(self.schema.serialize())
        if self.columns:
            text = _columns_text(self.columns)
            found[_digest(text)] = packed(text)
        return found

    def to_json(self) -> str:
        """Return the facts as one line of text."""
        return json.dumps([self.brief(), self.blobs()], separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "ShardFacts":
        """Return the facts that `to_json` wrote."""
        (rows, size, digest, schema, columns), blobs = json.loads(text)
        return cls(
            rows=rows,
            bytes=size,
            digest=digest,
            schema=schema_of(blobs[schema]) if schema else None,
            columns=lists_to_columns(json.loads(unpacked(blobs[columns]))) if columns else {},
        )


def _columns_text(columns: Mapping[str, ColumnFacts]) -> bytes:
    lists = {
        name: [facts.nulls, facts.inner_nulls, facts.sparse, facts.lengths] for name, facts in columns.items()
    }
    return json.dumps(lists, separators=(",", ":")).encode()


def lists_to_columns(lists: Mapping[str, Sequence[Any]]) -> dict[str, ColumnFacts]:
    """Return facts of columns from their form in JSON."""
    return {
        name: ColumnFacts(
            nulls=nulls, inner_nulls=inner, sparse=sparse, lengths=tuple((a, b) for a, b in lengths)
        )
        for name, (nulls, inner, sparse, lengths) in lists.items()
    }


def schema_of(blob: str) -> Any:
    """Return the schema in a blob."""
    return pa.ipc.read_schema(pa.py_buffer(unpacked(blob)))


def packed(data: Any) -> str:
    """Return bytes compressed, as text."""
    return base64.b64encode(zlib.compress(data)).decode()


def unpacked(text: str) -> bytes:
    """Return the bytes that `packed` compressed."""
    return zlib.decompress(base64.b64decode(text))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _schema_digest(schema: Any) -> str:
    """Return a digest that is the same for equal schemas, without their metadata."""
    return _digest(json.dumps([[each.name, str(each.type), each.nullable] for each in schema]).encode())


def observe(batch: Any) -> dict[str, ColumnFacts]:
    """Return the facts of one record batch."""
    return {leaf.name: _observe_column(leaf.array_in(batch)) for leaf in leaf_columns(batch.schema)}


def add_facts(parts: Iterable[Mapping[str, ColumnFacts]]) -> dict[str, ColumnFacts]:
    """Return the facts of all parts together."""
    total: dict[str, ColumnFacts] = {}
    for part in parts:
        for name, facts in part.items():
            total[name] = total[name] + facts if name in total else facts
    return total


def widen(one: Sequence[int], other: Sequence[int]) -> Length:
    """Return the range that covers two ranges."""
    if one[0] > one[1]:  # unseen
        return other[0], other[1]
    if other[0] > other[1]:
        return one[0], one[1]
    return min(one[0], other[0]), max(one[1], other[1])


def _observe_column(array: Any) -> ColumnFacts:
    array = normalized(array)
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
        array = normalized(array.flatten())
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
