"""Rows of Python objects as Arrow, for RDDs."""

import datetime
from collections import namedtuple
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from emberflow._feed.python_rows import BATCH_BYTES, record_batches, schema_of_rows
from emberflow._task.rdd_task import RddRows, split_rows
from emberflow.errors import DataError

Point = namedtuple("Point", ["x", "y"])


def table_of(rows: list[Any]) -> Any:
    return pa.Table.from_batches(record_batches(iter(rows), schema_of_rows(rows[:100])))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(1, "a"), (2, None)], [{"_1": 1, "_2": "a"}, {"_1": 2, "_2": None}]),
        ([[1, 2.5]], [{"_1": 1, "_2": 2.5}]),
        ([Point(1, 2)], [{"x": 1, "y": 2}]),
        ([{"b": 1, "a": "x"}, {"b": 2}], [{"a": "x", "b": 1}, {"a": None, "b": 2}]),
        ([1.5, 2.5], [{"value": 1.5}, {"value": 2.5}]),
        (["text"], [{"value": "text"}]),
        ([(b"bytes", True)], [{"_1": b"bytes", "_2": True}]),
        ([([1.0], [[1, 2], [3]])], [{"_1": [1.0], "_2": [[1, 2], [3]]}]),
        ([(datetime.date(2020, 1, 2),)], [{"_1": datetime.date(2020, 1, 2)}]),
        ([np.array([1.0, 2.0]), np.array([3.0, 4.0])], [{"value": [1.0, 2.0]}, {"value": [3.0, 4.0]}]),
        ([(np.array([1, 2], np.uint8), 0)], [{"_1": [1, 2], "_2": 0}]),
        ([(np.zeros((2, 2)), 0)], [{"_1": [[0.0, 0.0], [0.0, 0.0]], "_2": 0}]),
        (
            [(np.array([1.0]), 0), (np.array([1.0, 2.0]), 0)],
            [{"_1": [1.0], "_2": 0}, {"_1": [1.0, 2.0], "_2": 0}],
        ),
        ([(np.float32(1.5), np.int64(3))], [{"_1": 1.5, "_2": 3}]),
        ([(1, {"k": 2})], [{"_1": 1, "_2": {"k": 2}}]),
    ],
)
def test_rows_of_every_form(rows: list[Any], expected: list[Any]) -> None:
    assert table_of(rows).to_pylist() == expected


def test_batches_have_some_megabytes_whatever_the_rows() -> None:
    for row in ((1, 2.0), (list(map(float, range(784))), 1)):
        rows = [row] * (200_000 if row[0] == 1 else 5_000)
        batches = list(record_batches(iter(rows), schema_of_rows(rows[:100])))
        assert sum(batch.num_rows for batch in batches) == len(rows)
        assert max(batch.nbytes for batch in batches) < 1.5 * BATCH_BYTES
        assert len(batches) < 20


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([(1, "a")] * 100 + [(1, "a", 2)], "All rows must have"),
        ([(1, "a")] * 100 + [("x", "a")], "Column '_1' must have values of one type .int64."),
        ([(1, "a")] * 100 + [7], "All rows must have"),
        ([(None, 1)], "only nulls in _1"),
        ([(1, object())], "Column '_2'"),
        ([([],)], "only nulls in _1"),
    ],
)
def test_rows_that_differ_are_errors(rows: list[Any], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        table_of(rows)


def test_rows_are_dealt_to_all_ranks_with_keys_of_their_own() -> None:
    values = [(x, float(x)) for x in range(10_000)]
    schema = schema_of_rows(values)
    rows = RddRows(name="train", schemas=(("train", bytes(schema.serialize())),))
    parts = [(rank, data) for p in (0, 1) for rank, data in split_rows(rows, 3, p, values)]
    seen: dict[int, list[Any]] = {0: [], 1: [], 2: []}
    for rank, data in parts:
        assert isinstance(data, bytes)
        seen[rank] += pa.ipc.read_record_batch(pa.py_buffer(data), rows.shuffled).to_pylist()
    assert sorted(row["_1"] for part in seen.values() for row in part) == sorted([*range(10_000)] * 2)
    assert len({row["__ef_key"] for part in seen.values() for row in part}) == 20_000
    assert max(map(len, seen.values())) - min(map(len, seen.values())) <= 2
