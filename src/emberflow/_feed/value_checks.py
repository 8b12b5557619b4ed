"""Values that training cannot use, counted a whole column at a time: NaN, infinite, or outside a range."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from emberflow._feed.arrays import LeafColumn, is_list, is_vector, normalized, offsets_of, word_view


@dataclass(frozen=True, kw_only=True)
class Outside:
    """Rows of a column with a value outside of a range.

    Attributes:
        rows: How many.
        least: The least value of the column.
        most: The greatest value of the column.
    """

    rows: int
    least: float
    most: float


def rows_not_finite(batches: Iterable[Any], leaf: LeafColumn) -> int:
    """Return how many rows of a column hold NaN or an infinite value; 0 for a column of whole numbers."""
    return sum(
        _rows_where(array, lambda values: ~np.isfinite(values))
        for array in _arrays(batches, leaf)
        if pa.types.is_floating(_innermost(array.type))
    )


def rows_outside(
    batches: Iterable[Any], leaf: LeafColumn, least: float, most: float, ignored: float | None = None
) -> Outside | None:
    """Return the rows of a numeric column with a value outside of the range, or None if there are none."""
    rows, lows, highs = 0, [0.0], [0.0]

    def are_outside(values: NDArray[Any]) -> NDArray[np.bool_]:
        found = (values < least) | (values > most)
        return found if ignored is None else found & (values != ignored)

    for array in _arrays(batches, leaf):
        low, high = _range(array)
        if low is None or (low >= least and high <= most):
            continue
        if outside := _rows_where(array, are_outside):
            rows += outside
            lows.append(low)
            highs.append(high)
    return Outside(rows=rows, least=min(lows), most=max(highs)) if rows else None


def _arrays(batches: Iterable[Any], leaf: LeafColumn) -> Iterable[Any]:
    for batch in batches:
        array = normalized(leaf.array_in(batch))
        yield array.field("values") if is_vector(array.type) else array


def _innermost(kind: Any) -> Any:
    while is_list(kind):
        kind = kind.value_type
    return kind


def _range(array: Any) -> tuple[Any, Any]:
    while is_list(array.type):
        array = array.flatten()
    found = pc.min_max(array).as_py()
    return found["min"], found["max"]


def _rows_where(array: Any, test: Any) -> int:
    """Return in how many rows a value passes the test."""
    ends = np.arange(len(array) + 1)
    while is_list(array.type):
        offsets = offsets_of(array)
        ends = (offsets - offsets[0])[ends]
        array = array.flatten()
    values = np.asarray(array) if pa.types.is_boolean(array.type) else word_view(array)
    found = test(values)
    if not found.any():
        return 0
    counts = np.concatenate([np.zeros(1, np.int64), np.cumsum(found)])
    return int((np.diff(counts[ends]) > 0).sum())
