"""File sources, which need no Spark job: each rank reads its own part of the files.

The interface is `FileSource`. A source lists its fragments in a deterministic order, and reads any range of rows of
a fragment. `rank_batches` balances the fragments over the ranks and yields the rows of one rank as record batches
with keys, in file order. After that they are rows like those of a DataFrame: same spool, same epochs, same
positions. Sources are pickled to the executors, so they hold paths and options, never open files.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from emberflow._feed.arrays import KEY
from emberflow._plan.steps import balanced_assignment, balanced_ranges

_ROW_BITS = 40  # of a key; the 23 bits above are the fragment's number


@dataclass(frozen=True, kw_only=True)
class Fragment:
    """A part of the files that can be read on its own.

    Attributes:
        path: The file.
        part: Which part of the file, such as a row group; 0 for a file that has no parts.
        rows: How many rows it has, before any filter; None where only reading it would tell.
        bytes: Its size, for balancing where rows are unknown.
    """

    path: str
    part: int = 0
    rows: int | None = None
    bytes: int = 0


class FileSource(Protocol):
    """Files of rows.

    `Parquet` and `TFRecords` implement it. A source of another format, such as ORC, needs these two methods only.
    """

    def fragments(self) -> Sequence[Fragment]:
        """Return all fragments, the same in the same order in every process."""

    def read(self, fragment: Fragment, start: int, stop: int | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows from `start` up to `stop` (None: to the end); filters apply to these rows."""


@dataclass(frozen=True, kw_only=True)
class FragmentRange:
    """Rows `start` to `stop` of the fragment with this number; `stop` is None for all of it."""

    number: int
    fragment: Fragment
    start: int = 0
    stop: int | None = None


def rank_ranges(fragments: Sequence[Fragment], ranks: int) -> tuple[tuple[FragmentRange, ...], ...]:
    """Return the ranges of each rank: equal numbers of rows where they are known, otherwise of bytes.

    >>> parts = rank_ranges([Fragment(path="a", rows=10), Fragment(path="b", rows=4)], 2)
    >>> [[(piece.fragment.path, piece.start, piece.stop) for piece in part] for part in parts]
    [[('a', 0, 7)], [('a', 7, 10), ('b', 0, 4)]]
    """
    rows = [fragment.rows for fragment in fragments if fragment.rows is not None]
    if len(rows) < len(fragments):
        wholes = balanced_assignment([fragment.bytes for fragment in fragments], ranks)
        return tuple(
            tuple(FragmentRange(number=number, fragment=fragments[number]) for number in part)
            for part in wholes
        )
    return tuple(
        tuple(
            FragmentRange(number=number, fragment=fragments[number], start=start, stop=stop)
            for number, start, stop in part
        )
        for part in balanced_ranges(rows, ranks)
    )


def rank_batches(
    source: FileSource, rank: int, ranks: int, fragments: Sequence[Fragment] | None = None
) -> Iterator[Any]:
    """Yield the rows of one rank, each with its key: the fragment's number, then the row's number in it.

    Args:
        source: The files.
        rank: This rank's number among the ranks that hold rows.
        ranks: The number of these ranks.
        fragments: The fragments that the driver listed; None lists them here.
    """
    listed = source.fragments() if fragments is None else fragments
    for piece in rank_ranges(listed, ranks)[rank]:
        seen = (piece.number << _ROW_BITS) + piece.start
        for batch in source.read(piece.fragment, piece.start, piece.stop):
            keys = np.arange(seen, seen + batch.num_rows, dtype=np.int64)
            seen += batch.num_rows
            yield batch.add_column(0, KEY, pa.array(keys))
