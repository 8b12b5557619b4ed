"""Rows of an encrypted spool that is larger than the memory for it: decrypted in stages, in the order of the epoch.

A shuffled window has rows of nearly every chunk, so reading window by window would decrypt the whole file for each of
some megabytes. A stage is as many of the epoch's next rows as memory may hold; windows are then read from the stage.
The file is decrypted once per stage, and only the columns that are asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from emberflow._feed.arrow_to_numpy import FlatArrays
from emberflow._feed.buffer_pool import BufferPool
from emberflow._feed.epochs import Fetch
from emberflow._feed.row_windows import (
    HeldRows,
    Rows,
    RowSelection,
    TensorGroup,
    WindowReader,
    held_rows,
    piece_of,
)
from emberflow._feed.sealed_chunks import SealedChunks
from emberflow._feed.spool import Spool

_ORDER_BYTES = 48  # of each row of a stage, for its place and its turn


def fetch_from(spool: Spool, groups: Sequence[TensorGroup]) -> Fetch:
    """Return how rows of this spool are fetched."""
    if isinstance(spool.chunks, SealedChunks):
        return StagedReader(spool, spool.chunks, groups).fetch
    columns = [column for group in groups for column in group.columns]
    reader = WindowReader(held_rows(spool, columns), groups)
    return lambda order, start, stop: reader.fetch(order[start:stop])


@dataclass(frozen=True, kw_only=True)
class _Stage:
    """The rows `first` to `last` of an epoch's order."""

    order: Rows
    first: int
    last: int
    reader: WindowReader

    def holds(self, order: Rows, start: int, stop: int) -> bool:
        return order is self.order and self.first <= start and stop <= self.last


class StagedReader:
    """Fetches rows of an encrypted spool, holding at most `Spool.memory` bytes of them decrypted."""

    def __init__(self, spool: Spool, chunks: SealedChunks, groups: Sequence[TensorGroup]) -> None:
        self._columns = [column for group in groups for column in group.columns]
        names = dict.fromkeys(column.leaf.path[0] for column in self._columns)
        self._spool = spool
        self._groups = groups
        self._chunks = chunks.select(names)
        self._rows = max(1, int(spool.memory / (spool.bytes_per_row(names) + _ORDER_BYTES)))
        self._buffers = BufferPool()
        self._stage: _Stage | None = None

    def fetch(self, order: Rows, start: int, stop: int) -> FlatArrays:
        """Return these rows of an epoch's order; what follows them is decrypted with them."""
        stage = self._stage
        if stage is None or not stage.holds(order, start, stop):
            stage = self._stage = None  # its memory must be free before the next stage is filled
            stage = self._stage = self._fill(order, start, max(stop, min(start + self._rows, len(order))))
        return stage.reader.fetch(np.arange(start - stage.first, stop - stage.first))

    def _fill(self, order: Rows, first: int, last: int) -> _Stage:
        selection = RowSelection(self._spool.places(order[first:last]), self._spool.starts)
        pieces: dict[str, list[Any]] = {column.name: [] for column in self._columns}
        edges = [0]
        for number, _, stop, at in selection.runs():
            chunk = self._chunks[number]
            for column in self._columns:
                piece = piece_of(column, self._spool, chunk)
                pieces[column.name].append(_rows_of(piece, at, in_order=selection.in_order))
            edges.append(stop)
        held = HeldRows(
            pieces=pieces,
            starts=np.array(edges, np.int64),
            order=None if selection.in_order else selection.back,
        )
        reader = WindowReader(held, self._groups, self._buffers)
        return _Stage(order=order, first=first, last=last, reader=reader)


def _rows_of(piece: Any, at: Rows, *, in_order: bool) -> Any:
    if in_order:
        return piece[int(at[0]) : int(at[-1]) + 1]
    return np.take(piece, at, axis=0) if isinstance(piece, np.ndarray) else piece.take(pa.array(at))
