"""Rows of a column that do not fit the model's input, with the reason; checked one list level at a time."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emberflow._feed.arrays import is_vector, normalized, offsets_of, valid_rows, word_view
from emberflow._feed.element_types import BYTES
from emberflow._score.input_plan import InputColumn, InputPlan
from emberflow._score.model_facts import shape_text

Sizes = NDArray[np.int64]
Valid = NDArray[np.bool_] | None


class ColumnCheck:
    """The check of one column of a batch.

    Attributes:
        bad: Rows that do not fit, with a reason each.
        sizes: For each level that may have any length, its length in every row.
    """

    def __init__(self, column: InputColumn, plan: InputPlan, array: Any) -> None:
        self.bad: dict[int, str] = {}
        self.sizes: list[Sizes] = []
        self._column = column
        self._plan = plan
        self._rows = len(array)
        array = normalized(array)
        valid = valid_rows(array)
        if valid is not None:
            self._mark(np.flatnonzero(~valid), "null")
        if is_vector(array.type):
            self._check(0, _vector_sizes(array, valid), valid, None)
        elif column.decode:
            self._check(0, self._numbers_in(_sizes(array, valid)), valid, None)
        else:
            self._descend(array, valid)

    def _descend(self, array: Any, valid: Valid) -> None:
        """Check each level of lists, then the values."""
        owners: Sizes | None = None  # the row that each element belongs to; None while they are the rows
        levels = len(self._column.lengths)
        for level in range(levels):
            sizes = _sizes(array, valid)
            self._check(level, sizes, valid, owners)
            array = normalized(array.flatten())
            valid = valid_rows(array)
            if level + 1 == levels and valid is None and self._column.limits is None:
                return  # the usual case: no need to know which row each value is in
            owners = np.repeat(np.arange(self._rows) if owners is None else owners, sizes)
            if valid is not None:
                self._mark(np.unique(owners[~valid]), "a null inside")
        if self._column.limits is not None:
            self._check_limits(array, owners, self._column.limits)

    def _check(self, level: int, sizes: Sizes, valid: Valid, owners: Sizes | None) -> None:
        """Mark rows with a wrong length at one level; record the lengths where any is allowed."""
        expected: Any = self._column.lengths[level]
        least = self._column.pad_to if level == 0 else 0
        if expected is None:
            sizes = np.maximum(sizes, least)
            expected = self._open(sizes, owners)
        elif least == expected:
            sizes = np.maximum(sizes, least)  # shorter ones are padded
        wrong = sizes != expected
        if valid is not None:
            wrong &= valid
        if wrong.any():
            rows, places = np.unique(
                np.flatnonzero(wrong) if owners is None else owners[wrong], return_index=True
            )
            unit = "values" if level == 0 else f"values at dimension {level + 1}"
            for row, size in zip(rows, sizes[wrong][places], strict=True):
                self._mark([row], f"{size} {unit}")

    def _open(self, sizes: Sizes, owners: Sizes | None) -> Sizes:
        """Record the lengths of a level that may have any; return the lengths that make a tensor."""
        if self._plan.ragged or owners is None:
            self.sizes.append(sizes)
            return sizes
        first = np.zeros(self._rows, np.int64)  # below the rows' own lists, all lists of one row must agree
        first[owners[::-1]] = sizes[::-1]
        self.sizes.append(first)
        return first[owners]

    def _numbers_in(self, sizes: Sizes) -> Sizes:
        """Return how many numbers binary values of these lengths hold."""
        width = np.dtype(self._column.stored).itemsize
        for row in np.flatnonzero(sizes % width):
            self._mark([row], f"{sizes[row]} bytes")
        return sizes // width

    def _check_limits(self, array: Any, owners: Sizes | None, limits: tuple[int, int]) -> None:
        values = word_view(array.fill_null(0) if array.null_count else array)
        for place in np.flatnonzero((values < limits[0]) | (values > limits[1])):
            row = place if owners is None else owners[place]
            self._mark([row], f"{values[place]}, which {self._plan.dtype} cannot hold")

    def _mark(self, rows: Iterable[Any], found: str) -> None:
        for row in rows:
            self.bad.setdefault(int(row), f"{self._expected()} Received: {found}.")

    def _expected(self) -> str:
        column, plan = self._column, self._plan
        alone = len(plan.columns) == 1
        shape = (*column.lengths[: plan.ragged], *plan.shape) if alone else column.lengths
        kind = "string" if plan.dtype == BYTES else plan.dtype
        what = f"{kind} of shape {shape_text(shape)}" if shape else f"one {kind}"
        if column.decode:
            count = (
                "any number of" if None in column.lengths else math.prod(size or 0 for size in column.lengths)
            )
            what += f", {count} {column.stored} values in binary"
        return f"Column {column.leaf.name!r} must hold {what}."


def _sizes(array: Any, valid: Valid) -> Sizes:
    """Return the length of each list or binary value, 0 for null."""
    sizes = np.diff(offsets_of(array)).astype(np.int64)
    if valid is not None:
        sizes[~valid] = 0
    return sizes


def _vector_sizes(array: Any, valid: Valid) -> Sizes:
    """Return the size of each Spark ML vector, dense or sparse."""
    sizes = _sizes(array.field("values"), valid)
    sparse = np.asarray(array.field("type")) == 0
    if valid is not None:
        sparse &= valid
    if sparse.any():
        sizes[sparse] = np.asarray(array.field("size").fill_null(0))[sparse]
    return sizes
