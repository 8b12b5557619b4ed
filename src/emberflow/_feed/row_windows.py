"""Rows of a spool by position, in windows of some megabytes.

A column whose rows all have one width is gathered from the mapped file by one `np.take` (`_WholeColumn`). For others
random access to a file of many chunks is slow for one batch at a time, which touches nearly every chunk of every
column. So the rows of many batches are fetched together, chunk by chunk, and ordered in memory; tf.data then cuts the
window into batches, outside of Python.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from emberflow._feed.arrow_to_numpy import FlatArrays, can_view, flat_arrays_of, view_of
from emberflow._feed.buffer_pool import BufferPool
from emberflow._feed.element_types import BYTES
from emberflow._feed.spool import WIDE_ROW, Spool
from emberflow._feed.tensor_columns import Column

# Measured; see `window_rows`.
_LEAST_BYTES = 4 << 20
_MOST_BYTES = 24 << 20
_MOST_ROWS = 1 << 18  # of very narrow rows: bounds the time until the first batch
_CHUNK_NANOSECONDS = 80_000  # cost of one column of one chunk, whatever the number of rows

Rows = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class TensorGroup:
    """Columns that TensorFlow gets as one array: one column, or scalars of one dtype stacked as ``[column, row]``.

    Each array costs about 30 microseconds in TensorFlow, however small: forty narrow columns in one array cost as
    much as one.
    """

    columns: tuple[Column, ...]
    stacked: bool

    @property
    def dtype(self) -> str:
        """Numpy's name of the dtype, or ``bytes``."""
        return self.columns[0].dtype


def group_columns(columns: Sequence[Column]) -> tuple[TensorGroup, ...]:
    """Stack the scalar columns of each dtype; each other column is a group of its own."""
    stacks: dict[str, list[Column]] = {}
    alone = []
    for column in columns:
        if column.shape or column.ragged or column.dtype == BYTES:
            alone.append(TensorGroup(columns=(column,), stacked=False))
        else:
            stacks.setdefault(column.dtype, []).append(column)
    return (*(TensorGroup(columns=tuple(stack), stacked=True) for stack in stacks.values()), *alone)


def window_rows(spool: Spool, columns: Sequence[Column]) -> int:
    """Return how many rows of these columns make a window.

    Enough that the cost per chunk of each column is small compared with the cost per row, and no more: data that fits
    into the processor's cache is copied faster. Measured optimum: 24 MB for forty narrow columns, 4 to 8 MB for rows
    of 3 kB. For wide rows chunks do not matter, and a window of one batch is not cut.
    """
    if not spool.rows:
        return 1
    tops = {column.leaf.path[0] for column in columns}
    row = spool.bytes_per_row(tops)
    nanoseconds = 5 + row / max(1, len(columns)) / 4  # to copy one value
    wanted = 0.0 if row >= WIDE_ROW else len(spool.chunks) * _CHUNK_NANOSECONDS / nanoseconds
    least, most = _LEAST_BYTES / max(1.0, row), _MOST_BYTES / max(1.0, row)
    return int(max(1, min(max(least, wanted), most, _MOST_ROWS)))


@dataclass(frozen=True, kw_only=True)
class HeldRows:
    """Some columns of rows that are mapped or in memory, chunk by chunk.

    Attributes:
        pieces: Each column's values in each chunk, by the column's name: a numpy array (`piece_of`), or Arrow's.
        starts: The number of each chunk's first row, and at the end the number of all rows.
        order: The place of the row at each position; None where both are the same.
        mapping: The bytes of the file that the pieces are parts of, or None.
    """

    pieces: Mapping[str, Sequence[Any]]
    starts: Rows
    order: Rows | None
    mapping: NDArray[np.uint8] | None = None

    def places(self, positions: Rows) -> Rows:
        """Return the places of the rows at these positions."""
        return positions if self.order is None else self.order[positions]


def held_rows(spool: Spool, columns: Sequence[Column]) -> HeldRows:
    """Return columns of a spool whose chunks are held, zero copy."""
    pieces = {column.name: [piece_of(column, spool, chunk) for chunk in spool.chunks] for column in columns}
    return HeldRows(pieces=pieces, starts=spool.starts, order=spool.order, mapping=spool.mapping)


def piece_of(column: Column, spool: Spool, chunk: Any) -> Any:
    """Return a column's values in one chunk without a copy: for numpy if possible, since it takes rows faster."""
    array = column.leaf.array_in(chunk)
    return view_of(column, array) if can_view(column, spool.facts.columns[column.name]) else array


class WindowReader:
    """Fetches rows as the arrays that `group_columns` describes; `buffers` may be shared with other readers."""

    def __init__(
        self, held: HeldRows, groups: Sequence[TensorGroup], buffers: BufferPool | None = None
    ) -> None:
        self._held = held
        self._groups = groups
        self._buffers = buffers or BufferPool()
        self._sources = [
            [_HeldColumn(column, held, self._buffers) for column in group.columns] for group in groups
        ]

    def fetch(self, positions: Rows) -> FlatArrays:
        """Return the rows at these canonical positions, in this order."""
        selection = RowSelection(self._held.places(positions), self._held.starts)
        arrays: FlatArrays = []
        for group, sources in zip(self._groups, self._sources, strict=True):
            if group.stacked:
                rows = self._buffers.empty((len(sources), selection.rows), group.dtype)
                for row, source in zip(rows, sources, strict=True):
                    source.fill(row, selection)
                arrays.append(rows)
            else:
                arrays += sources[0].fetch(selection)
        return arrays


def flat_arrays_of_batch(groups: Sequence[TensorGroup], batch: Any) -> FlatArrays:
    """Return all rows of one record batch as the arrays that `group_columns` describes."""
    arrays: FlatArrays = []
    for group in groups:
        per_column = [flat_arrays_of(column, column.leaf.array_in(batch)) for column in group.columns]
        arrays += [np.stack([values for (values,) in per_column])] if group.stacked else per_column[0]
    return arrays


class RowSelection:
    """Some rows of a file: their chunks, and how to order them."""

    def __init__(self, places: Rows, starts: Rows) -> None:
        self.rows = len(places)
        self.places = places
        self._starts = starts
        self.in_order = not self.rows or bool((np.diff(places) == 1).all())

    @cached_property
    def chunks(self) -> NDArray[np.intp]:
        """The chunk of each row."""
        return np.searchsorted(self._starts, self.places, side="right") - 1

    @cached_property
    def back(self) -> Rows:
        """Where each row is among the sorted rows."""
        back = np.empty(self.rows, np.int64)
        back[self._sorting] = np.arange(self.rows)
        return back

    def runs(self) -> Iterator[tuple[int, int, int, Rows]]:
        """Yield each chunk that has rows, their range among the sorted rows, and their numbers in the chunk."""
        ranked = self.places if self.in_order else self.places[self._sorting]
        for chunk, start, stop in self._runs:
            yield chunk, start, stop, ranked[start:stop] - self._starts[chunk]

    @cached_property
    def _sorting(self) -> NDArray[np.intp]:
        return np.argsort(self.places)

    @cached_property
    def _runs(self) -> list[tuple[int, int, int]]:
        if self.in_order:
            first = int(self.places[0]) if self.rows else 0
            edges = np.clip(self._starts, first, first + self.rows) - first
        else:
            edges = np.searchsorted(self.places[self._sorting], self._starts)
        held = np.flatnonzero(np.diff(edges))
        return [(int(chunk), int(edges[chunk]), int(edges[chunk + 1])) for chunk in held]


class _WholeColumn:
    """All rows of a column as some of the rows of one matrix: the mapped file."""

    def __init__(self, matrix: NDArray[Any], shifts: Rows) -> None:
        self._matrix = matrix
        self._shifts = shifts

    @classmethod
    def over(cls, views: Sequence[NDArray[Any]], held: HeldRows) -> "_WholeColumn | None":
        """Return it if every view begins at a multiple of a row's width from the first; else None."""
        mapping, one = held.mapping, views[0]
        width = one.strides[0]
        if mapping is None or not width or any(view.strides != one.strides for view in views):
            return None
        begin = mapping.ctypes.data
        ats = np.array([view.ctypes.data - begin for view in views], np.int64)
        first = int(ats[0]) % width
        if (ats % width != first).any() or ats.min() < 0 or ats.max() >= mapping.nbytes:
            return None
        rows = (mapping.nbytes - first) // width
        matrix = mapping[first : first + rows * width].view(one.dtype).reshape(rows, *one.shape[1:])
        return cls(matrix, ats // width - held.starts[:-1])

    def take(self, selection: RowSelection, out: NDArray[Any]) -> None:
        """Copy the selected rows in the requested order, each once."""
        at = self._shifts[selection.chunks]
        at += selection.places
        # mode="clip": by default numpy writes into a buffer first, to be able to undo it on an error.
        np.take(self._matrix, at, axis=0, out=out, mode="clip")


class _HeldColumn:
    """One column, chunk by chunk."""

    def __init__(self, column: Column, held: HeldRows, buffers: BufferPool) -> None:
        pieces = held.pieces[column.name]
        self._column = column
        self._buffers = buffers
        self._arrays = pieces
        self._views = pieces if pieces and isinstance(pieces[0], np.ndarray) else None
        self._whole = None if self._views is None else _WholeColumn.over(self._views, held)

    def fetch(self, selection: RowSelection) -> FlatArrays:
        """Return the selected rows in the requested order."""
        if self._views is None:
            return flat_arrays_of(self._column, self._taken(selection))
        rows = self._buffers.empty((selection.rows, *self._column.shape), self._column.dtype)
        self.fill(rows, selection)
        return [rows]

    def fill(self, rows: NDArray[Any], selection: RowSelection) -> None:
        """Write the selected rows into an array."""
        if self._views is None:
            rows[:] = flat_arrays_of(self._column, self._taken(selection))[0]
        elif selection.in_order:
            for chunk, start, stop, at in selection.runs():
                rows[start:stop] = self._views[chunk][int(at[0]) : int(at[-1]) + 1]
        elif self._whole is not None and self._views[0].dtype == rows.dtype:
            self._whole.take(selection, rows)
        else:
            self._take_twice(self._views, rows, selection)

    def _take_twice(self, views: Sequence[NDArray[Any]], rows: NDArray[Any], selection: RowSelection) -> None:
        """Take the rows chunk by chunk, then order them.

        Numpy's indexing would copy twice as well, the first time into new memory, which the kernel clears at a higher
        cost than that of the copy.
        """
        ranked = self._buffers.empty(rows.shape, views[0].dtype)
        for chunk, start, stop, at in selection.runs():
            np.take(views[chunk], at, axis=0, out=ranked[start:stop], mode="clip")
        if ranked.dtype == rows.dtype:
            np.take(ranked, selection.back, axis=0, out=rows, mode="clip")
        else:
            rows[:] = ranked[selection.back]

    def _taken(self, selection: RowSelection) -> Any:
        if not selection.rows:
            return pa.array([], self._column.leaf.type)
        if selection.in_order:
            slices = [
                self._arrays[chunk].slice(int(at[0]), stop - start)
                for chunk, start, stop, at in selection.runs()
            ]
            return slices[0] if len(slices) == 1 else pa.concat_arrays(slices)
        pieces = [self._arrays[chunk].take(pa.array(at)) for chunk, _, _, at in selection.runs()]
        return pa.concat_arrays(pieces).take(pa.array(selection.back))
