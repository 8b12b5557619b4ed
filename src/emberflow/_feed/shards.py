"""What every rank is sent about the shards of all ranks: small for any number of ranks and columns.

Each rank sends a summary of its shard and, by their digests, two blobs: its schema and the facts of its columns. At
the rendezvous they are merged: rows and digest of each shard, one schema, one set of facts about columns. A rank
without a batch gets the schema in this way too.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emberflow._feed.shard_facts import (
    UNSEEN,
    Brief,
    ColumnFacts,
    ShardFacts,
    lists_to_columns,
    packed,
    schema_of,
    unpacked,
    widen,
)
from emberflow.errors import DataError

NAMED = 5  # ranks or columns that a message names; others are counted


@dataclass(frozen=True, kw_only=True)
class Nulls:
    """Where the nulls of one column are.

    Attributes:
        ranks: The number of ranks with nulls.
        first: For the first of them: the rank, rows that are null, nulls inside the rows.
    """

    ranks: int
    first: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, kw_only=True)
class Shards:
    """All shards of one name.

    Attributes:
        each: Rows and digest of each rank's shard, in rank order; their other facts are not sent.
        schema: The schema of all ranks.
        columns: Facts of all rows together, by dotted column name.
        nulls: Where nulls are, by dotted column name; columns without any are left out.
        spans: The ranks of the shortest and of the longest row, by dotted column name, where ranks differ.
    """

    each: tuple[ShardFacts, ...]
    schema: Any
    columns: Mapping[str, ColumnFacts]
    nulls: Mapping[str, Nulls] = field(default_factory=dict)
    spans: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def from_json(cls, text: str) -> "Shards":
        """Return what `merge_briefs` wrote."""
        each, schema, merged = json.loads(text)
        columns, nulls, spans = json.loads(unpacked(merged))
        return cls(
            each=tuple(ShardFacts(rows=rows, digest=digest) for rows, digest in each),
            schema=schema_of(schema),
            columns=lists_to_columns(columns),
            nulls={
                name: Nulls(ranks=ranks, first=tuple(tuple(place) for place in first))
                for name, (ranks, first) in nulls.items()
            },
            spans={name: (shortest, longest) for name, (shortest, longest) in spans.items()},
        )


def merge_shards(shards: Iterable[ShardFacts], name: str = "train") -> Shards:
    """Return what all ranks know of these shards."""
    parts = list(shards)
    blobs = {digest: blob for part in parts for digest, blob in part.blobs().items()}
    return Shards.from_json(merge_briefs(name, [part.brief() for part in parts], blobs))


def merge_briefs(name: str, briefs: Sequence[Brief], blobs: Mapping[str, str]) -> str:
    """Return the merged facts of the shards of one name as text.

    Args:
        name: The data's name.
        briefs: The summary of each rank, in rank order.
        blobs: The content of the digests in the summaries.
    """
    _check_rows(name, briefs)
    schema = _agreed(name, briefs, blobs)
    merged_columns = _merged_columns(briefs, blobs)
    each = [[rows, digest] for rows, _, digest, _, _ in briefs]
    merged = packed(json.dumps(merged_columns, separators=(",", ":")).encode())
    return json.dumps([each, blobs[schema], merged], separators=(",", ":"))


def _check_rows(name: str, briefs: Sequence[Brief]) -> None:
    """Raise an error if no rank has a row."""
    if not any(brief[0] for brief in briefs):
        raise DataError(
            f"The data must have at least one row. Received: data[{name!r}] without rows.",
            fix="Check the DataFrame's filters and joins (df.count() should be above 0), or the path of the files.",
        )


def _agreed(name: str, briefs: Sequence[Brief], blobs: Mapping[str, str]) -> str:
    """Return the digest of the schema of all ranks with rows."""
    holders: dict[str, list[int]] = {}
    for rank, (_, _, _, schema, _) in enumerate(briefs):
        if schema:
            holders.setdefault(schema, []).append(rank)
    if len(holders) > 1:
        (one, ranks), (other, others), *_ = holders.items()
        found = _differences(schema_of(blobs[one]), schema_of(blobs[other]))
        raise DataError(
            f"All workers must hold the same columns. Received: data[{name!r}] with {_some(found, '; ')} "
            f"(first at {_ranks(ranks)}, second at {_ranks(others)}).",
            fix="Give all files of one source the same columns and types.",
        )
    return next(iter(holders))


def _differences(one: Any, other: Any) -> list[str]:
    """Return how the columns of two schemas differ."""
    names = list(dict.fromkeys([*one.names, *other.names]))
    said = [(name, _said(one, name), _said(other, name)) for name in names]
    found = [f"{name!r}: {here} and {there}" for name, here, there in said if here != there]
    return found or [f"columns in another order: {one.names[:NAMED]} and {other.names[:NAMED]}"]


def _said(schema: Any, name: str) -> str:
    at = schema.get_field_index(name)
    if at < 0:
        return "no such column"
    column = schema.field(at)
    return f"{column.type}" if column.nullable else f"{column.type} not null"


def _ranks(ranks: Sequence[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {_some([str(rank) for rank in ranks], ', ')}"


def _some(words: Sequence[str], mark: str) -> str:
    more = len(words) - NAMED
    return mark.join(words[:NAMED]) + (f" and {more} more" if more > 0 else "")


Lists = dict[str, list[Any]]
Lengths = Sequence[Sequence[int]]


def _merged_columns(briefs: Sequence[Brief], blobs: Mapping[str, str]) -> tuple[Lists, Lists, Lists]:
    """Return the facts of all columns over all ranks, where nulls are, and where the extreme lengths are."""
    merging = _Merging()
    for rank, (_, _, _, _, digest) in enumerate(briefs):
        if digest:
            merging.add(rank, json.loads(unpacked(blobs[digest])))
    return merging.total, merging.nulls, merging.spans


class _Merging:
    """Facts of columns, merged in place: there may be a thousand columns on each of a thousand ranks."""

    def __init__(self) -> None:
        self.total: Lists = {}
        self.nulls: Lists = {}
        self.spans: Lists = {}
        self._first = -1

    def add(self, rank: int, columns: Lists) -> None:
        """Add the facts of one rank."""
        if self._first < 0:
            self._first = rank
        for name, facts in columns.items():
            rows, inner, sparse, lengths = facts
            if rows or inner:
                self._add_nulls(name, rank, rows, inner)
            mine = self.total.setdefault(name, facts)
            if mine is facts:
                continue
            if rows or inner or sparse:
                mine[:3] = [mine[0] + rows, mine[1] + inner, mine[2] + sparse]
            if mine[3] != lengths:  # see `ColumnFacts.__add__`
                self._add_span(name, rank, mine[3], lengths)
                mine[3] = list(map(widen, mine[3], lengths)) or mine[3] or lengths

    def _add_nulls(self, name: str, rank: int, rows: int, inner: int) -> None:
        places = self.nulls.setdefault(name, [0, []])
        places[0] += 1
        if places[0] <= NAMED:
            places[1].append([rank, rows, inner])

    def _add_span(self, name: str, rank: int, known: Lengths, new: Lengths) -> None:
        span = self.spans.setdefault(name, [self._first, self._first])
        if not new or tuple(new[0]) == UNSEEN:
            return
        is_first = not known or tuple(known[0]) == UNSEEN
        if is_first or new[0][0] < known[0][0]:
            span[0] = rank
        if is_first or new[0][1] > known[0][1]:
            span[1] = rank
