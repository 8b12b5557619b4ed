"""NaN, infinite values and values outside of a range are counted by row, whatever the type of the column."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from emberflow._feed.arrays import leaf_columns
from emberflow._feed.value_checks import Outside, rows_not_finite, rows_outside

NAN, INF = math.nan, math.inf
VECTOR = pa.struct(
    [
        ("type", pa.int8()),
        ("size", pa.int32()),
        ("indices", pa.list_(pa.int32())),
        ("values", pa.list_(pa.float64())),
    ]
)


def batches_of(*parts: Any, kind: Any = None) -> tuple[list[Any], Any]:
    batches = [pa.RecordBatch.from_arrays([pa.array(part, kind)], ["x"]) for part in parts]
    return batches, next(leaf_columns(batches[0].schema))


def vector(*values: float) -> dict[str, Any]:
    return {"type": 1, "size": None, "indices": None, "values": list(values)}


@pytest.mark.parametrize(
    ("parts", "kind", "rows"),
    [
        ([[1.0, NAN], [INF, -INF, 2.0]], pa.float32(), 3),
        ([[1.0, 2.0]], pa.float64(), 0),
        ([[1, 2]], pa.int32(), 0),
        ([["a"]], pa.string(), 0),
        ([[[1.0], [], [NAN, NAN], [0.0, INF]]], pa.list_(pa.float32()), 2),
        ([[[[1.0], [NAN]], [[2.0]], []], [[[]], [[NAN]]]], pa.list_(pa.list_(pa.float32())), 2),
        ([[[1.0, NAN], [2.0, 3.0]]], pa.list_(pa.float32(), 2), 1),
        ([[vector(1.0), vector(NAN), vector(INF, NAN)]], VECTOR, 2),
    ],
)
def test_rows_with_nan_or_infinite_values_are_counted_once(parts: Any, kind: Any, rows: int) -> None:
    assert rows_not_finite(*batches_of(*parts, kind=kind)) == rows


def test_slices_count_their_own_rows_only() -> None:
    (batch,), leaf = batches_of([[NAN], [1.0], [NAN, NAN], [2.0]], kind=pa.list_(pa.float32()))
    assert rows_not_finite([batch.slice(1, 2)], leaf) == 1


@pytest.mark.parametrize(
    ("parts", "kind", "found"),
    [
        ([[0, 1, 2], [2, 1]], pa.int64(), None),
        ([[0, 1, 2], [3, 7]], pa.int64(), Outside(rows=2, least=0, most=7)),
        ([[0, -1, 2]], pa.int8(), Outside(rows=1, least=-1, most=2)),
        ([[0.0, 4.0, NAN]], pa.float32(), Outside(rows=1, least=0, most=4)),
        ([[[0, 1], [5, 5], []]], pa.list_(pa.int32()), Outside(rows=1, least=0, most=5)),
        ([[False, True]], pa.bool_(), None),
        ([[]], pa.int32(), None),
    ],
)
def test_rows_outside_of_a_range(parts: Any, kind: Any, found: Outside | None) -> None:
    assert rows_outside(*batches_of(*parts, kind=kind), 0, 2) == found


def test_an_ignored_value_is_not_outside() -> None:
    assert rows_outside(*batches_of([0, -1, 2]), 0, 2, ignored=-1) is None


def test_a_binary_label_beyond_one_unit_is_found_in_booleans() -> None:
    assert rows_outside(*batches_of([False, True]), 0, 0) == Outside(rows=1, least=0, most=1)


def test_the_search_agrees_with_plain_python() -> None:
    numbers = np.random.default_rng(3)
    rows = [
        [
            float(value)
            for value in numbers.choice(
                [1.0, NAN, INF, -2.0], size=numbers.integers(0, 4), p=[0.7, 0.1, 0.1, 0.1]
            )
        ]
        for _ in range(500)
    ]
    expected = sum(any(not math.isfinite(value) for value in row) for row in rows)
    assert rows_not_finite(*batches_of(rows[:200], rows[200:], kind=pa.list_(pa.float64()))) == expected
