"""Rows as the model's input arrays; rows that do not fit are rejected with a reason."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from emberflow._feed.arrow_to_numpy import flat_arrays_of
from emberflow._feed.element_types import BYTES
from emberflow._feed.tensor_columns import Column
from emberflow._score.column_checks import ColumnCheck
from emberflow._score.input_plan import InputColumn, InputPlan


@dataclass(frozen=True)
class Ragged:
    """The values of a ragged input, and the row splits of each of its levels."""

    values: NDArray[Any]
    splits: list[NDArray[np.int64]]


@dataclass(frozen=True)
class RowGroup:
    """Rows that go through the model in one call; `rows` is None for all of them."""

    arrays: dict[str, Any]
    count: int
    rows: NDArray[np.int64] | None = None


def row_groups(plans: Sequence[InputPlan], batch: Any) -> tuple[list[RowGroup], dict[int, str]]:
    """Return a batch's rows as arrays, and for each row that does not fit the reason.

    Where the model leaves a length open, rows of one length go together: padding would make the result of a row
    depend on the other rows of its batch.
    """
    bad: dict[int, str] = {}
    sizes: list[NDArray[np.int64]] = []
    for plan in plans:
        for column in plan.columns:
            check = ColumnCheck(column, plan, column.leaf.array_in(batch))
            bad = check.bad | bad
            sizes += [] if plan.ragged else check.sizes
    good = None
    if bad:
        good = np.setdiff1d(np.arange(batch.num_rows), np.fromiter(bad, np.int64, len(bad)))
        batch = batch.take(pa.array(good))
        sizes = [size[good] for size in sizes]
    return list(_groups(plans, batch, sizes, good)), bad


def _groups(
    plans: Sequence[InputPlan], batch: Any, sizes: list[NDArray[np.int64]], rows: NDArray[np.int64] | None
) -> Iterator[RowGroup]:
    if not batch.num_rows:
        return
    if all((size == size[0]).all() for size in sizes):
        yield RowGroup(_arrays(plans, batch, [int(size[0]) for size in sizes]), batch.num_rows, rows)
        return
    kinds, inverse = np.unique(np.stack(sizes, axis=1), axis=0, return_inverse=True)
    order = np.argsort(inverse.reshape(-1), kind="stable")
    ends = np.cumsum(np.bincount(inverse.reshape(-1)))
    for kind, places in zip(kinds, np.split(order, ends[:-1]), strict=True):
        part = batch.take(pa.array(places))
        own = places if rows is None else rows[places]
        yield RowGroup(_arrays(plans, part, [int(size) for size in kind]), len(places), own)


def _arrays(plans: Sequence[InputPlan], batch: Any, sizes: list[int]) -> dict[str, Any]:
    """Return the array of each input; `sizes` fill the open lengths of all columns, in order."""
    found = iter(sizes)
    return {plan.name: _array(plan, batch, found) for plan in plans}


def _array(plan: InputPlan, batch: Any, sizes: Iterator[int]) -> Any:
    parts = []
    for column in plan.columns:
        array = column.leaf.array_in(batch)
        if plan.ragged:
            values, *splits = flat_arrays_of(
                _column(column, plan.shape, column.lengths[plan.ragged :], plan.ragged), array
            )
            return Ragged(values, splits)
        lengths = tuple(next(sizes) if size is None else size for size in column.lengths)
        if len(plan.columns) == 1:
            shape = lengths if None in plan.shape else plan.shape
            values = (
                _padded(column, lengths, array)
                if column.pad_to
                else flat_arrays_of(_column(column, shape, lengths), array)[0]
            )
            return values.reshape(batch.num_rows, *shape).astype(_final(plan, column), copy=False)
        parts.append(flat_arrays_of(_column(column, lengths, lengths), array)[0].reshape(batch.num_rows, -1))
    return np.concatenate(parts, axis=1).astype(_final(plan, plan.columns[0]), copy=False)


def _padded(column: InputColumn, lengths: tuple[int, ...], array: Any) -> NDArray[Any]:
    """Return rows of arrays that are at most as long as the first of these lengths, padded to it."""
    values, splits = flat_arrays_of(_column(column, lengths[1:], lengths[1:], ragged=1), array)
    rows = np.full((len(array), *lengths), column.pad_value, values.dtype)
    rows[np.arange(lengths[0]) < np.diff(splits)[:, np.newaxis]] = values
    return rows


def _final(plan: InputPlan, column: InputColumn) -> Any:
    if column.stored == BYTES:
        return object
    return "float32" if plan.dtype == "bfloat16" else plan.dtype


def _column(column: InputColumn, shape: Sequence[Any], lengths: Sequence[Any], ragged: int = 0) -> Column:
    return Column(
        leaf=column.leaf,
        dtype=column.stored,
        lengths=tuple(lengths),
        shape=tuple(shape),
        ragged=ragged,
        decode=column.decode,
    )
