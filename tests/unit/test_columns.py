"""Every column type: what tensor it becomes, and its values, in order and shuffled, with and without nulls."""

# ruff: noqa: E501 - the table of cases reads best with one case a line

import datetime as dt
import decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberflow._feed import element_types
from emberflow._feed.arrays import KEY
from emberflow._feed.arrow_to_numpy import can_view, flat_arrays_of, view_of
from emberflow._feed.digest import digest_of
from emberflow._feed.element_types import ElementType
from emberflow._feed.row_windows import flat_arrays_of_batch, group_columns
from emberflow._feed.shard_facts import ColumnFacts, ShardFacts, observe
from emberflow._feed.shards import Shards, merge_shards
from emberflow._feed.spool import Spool, SpoolWriter
from emberflow._feed.staged_rows import fetch_from
from emberflow._feed.tensor_columns import Column, ColumnOptions, check_fit, plan_columns
from emberflow.errors import ConfigError, DataError

VECTOR = pa.struct(
    [
        ("type", pa.int8()),
        ("size", pa.int32()),
        ("indices", pa.list_(pa.int32())),
        ("values", pa.list_(pa.float64())),
    ]
)
UTC = dt.UTC


def shard_of(batch: Any) -> ShardFacts:
    return ShardFacts(rows=batch.num_rows, schema=batch.schema, columns=observe(batch))


def facts_of(*batches: Any) -> Shards:
    return merge_shards(map(shard_of, batches))


def plan(array: Any, **column_options: Any) -> Column:
    batch = pa.RecordBatch.from_arrays([array], ["c"])
    options = ColumnOptions(**{name: {"c": value} for name, value in column_options.items()})
    return plan_columns(facts_of(batch), options)["c"]


def rows_of(column: Column, wire: list[Any]) -> list[Any]:
    """Put the arrays of a column together again, row by row."""
    values, *splits = wire
    rows = values.tolist()
    for split in reversed(splits):
        rows = [rows[start:stop] for start, stop in pairwise(split)]
    return rows


def vectors(*rows: Any) -> Any:
    """Dense vectors from lists, sparse ones from (size, {index: value})."""
    made = []
    for row in rows:
        if row is None:
            made.append(None)
        elif isinstance(row, list):
            made.append({"type": 1, "size": None, "indices": None, "values": row})
        else:
            size, held = row
            made.append({"type": 0, "size": size, "indices": list(held), "values": list(held.values())})
    return pa.array(made, VECTOR)


CASES: list[tuple[str, Any, dict[str, Any], str, tuple[int, ...], int, list[Any]]] = [
    # name, array, column_options, dtype, dense shape, ragged levels, rows
    ("byte", pa.array([1, -2, 3], pa.int8()), {}, "int8", (), 0, [1, -2, 3]),
    ("short", pa.array([1, 2], pa.int16()), {}, "int16", (), 0, [1, 2]),
    ("int", pa.array([1, 2], pa.int32()), {}, "int32", (), 0, [1, 2]),
    ("long", pa.array([1, 2**60], pa.int64()), {}, "int64", (), 0, [1, 2**60]),
    ("float", pa.array([0.5, 2], pa.float32()), {}, "float32", (), 0, [0.5, 2]),
    ("double", pa.array([0.1, 2], pa.float64()), {}, "float64", (), 0, [0.1, 2]),
    ("cast", pa.array([1.5, 2.5]), {"dtypes": "float32"}, "float32", (), 0, [1.5, 2.5]),
    ("boolean", pa.array([True, False, True]), {}, "bool", (), 0, [True, False, True]),
    ("decimal", pa.array([decimal.Decimal("1.25")], pa.decimal128(10, 2)), {}, "float64", (), 0, [1.25]),
    ("date", pa.array([dt.date(1970, 1, 3)]), {}, "int32", (), 0, [2]),
    ("timestamp", pa.array([dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")), {}, "int64", (), 0, [10**6]),
    ("timestamp ns", pa.array([1500], pa.timestamp("ns")), {}, "int64", (), 0, [1]),
    ("interval", pa.array([7], pa.duration("us")), {}, "int64", (), 0, [7]),
    ("time", pa.array([5000], pa.time64("ns")), {}, "int64", (), 0, [5]),
    ("string", pa.array(["a", "", "é"]), {}, "bytes", (), 0, [b"a", b"", "é".encode()]),
    ("large string", pa.array(["a"], pa.large_string()), {}, "bytes", (), 0, [b"a"]),
    ("string view", pa.array(["a", "b" * 20], pa.string_view()), {}, "bytes", (), 0, [b"a", b"b" * 20]),
    ("dictionary", pa.array(["a", "b", "a"]).dictionary_encode(), {}, "bytes", (), 0, [b"a", b"b", b"a"]),
    ("binary", pa.array([b"\x01\x02", b""]), {}, "bytes", (), 0, [b"\x01\x02", b""]),
    ("bytes as numbers", pa.array([b"\x01\x02", b"\x03\x04"]), {"dtypes": "uint8"}, "uint8", (2,), 0, [[1, 2], [3, 4]]),
    ("bytes with a shape", pa.array([b"\1\2\3\4"]), {"dtypes": "uint8", "shapes": (2, 2)}, "uint8", (2, 2), 0, [[[1, 2], [3, 4]]]),
    ("bytes as floats", pa.array([np.float32([1, 2]).tobytes()] * 2), {"dtypes": "float32"}, "float32", (2,), 0, [[1, 2]] * 2),
    ("bytes of any length", pa.array([b"\1", b"", b"\2\3"]), {"dtypes": "uint8"}, "uint8", (), 1, [[1], [], [2, 3]]),
    ("pixels of any length", pa.array([b"\1\2", b"", b"\3\4\5\6"]), {"dtypes": "uint8", "shapes": (None, 2)}, "uint8", (2,), 1, [[[1, 2]], [], [[3, 4], [5, 6]]]),
    ("array", pa.array([[1.0, 2.0], [3.0, 4.0]]), {}, "float64", (2,), 0, [[1, 2], [3, 4]]),
    ("array with a shape", pa.array([[1, 2, 3, 4]]), {"shapes": (2, 2)}, "int64", (2, 2), 0, [[[1, 2], [3, 4]]]),
    ("array, ragged by option", pa.array([[1, 2], [3, 4]]), {"shapes": (None,)}, "int64", (), 1, [[1, 2], [3, 4]]),
    ("array of any length", pa.array([[1], [], [2, 3]]), {}, "int64", (), 1, [[1], [], [2, 3]]),
    ("large array", pa.array([[1], [2]], pa.large_list(pa.int32())), {}, "int32", (1,), 0, [[1], [2]]),
    ("fixed array", pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2)), {}, "int32", (2,), 0, [[1, 2], [3, 4]]),
    ("array of booleans", pa.array([[True], [False]]), {}, "bool", (1,), 0, [[True], [False]]),
    ("array of strings", pa.array([["a", "b"], ["c"]]), {}, "bytes", (), 1, [[b"a", b"b"], [b"c"]]),
    ("array of dates", pa.array([[dt.date(1970, 1, 2)]]), {}, "int32", (1,), 0, [[1]]),
    ("nested array", pa.array([[[1, 2]], [[3, 4]]]), {}, "int64", (1, 2), 0, [[[1, 2]], [[3, 4]]]),
    ("nested, outer varies", pa.array([[[1, 2]], [], [[3, 4], [5, 6]]]), {}, "int64", (2,), 1, [[[1, 2]], [], [[3, 4], [5, 6]]]),
    ("nested, inner varies", pa.array([[[1], [2, 3]], [[4], []]]), {}, "int64", (), 2, [[[1], [2, 3]], [[4], []]]),
    ("vector", vectors([1.0, 2.0], [3.0, 4.0]), {}, "float64", (2,), 0, [[1, 2], [3, 4]]),
    ("sparse vector", vectors((4, {1: 5.0}), (4, {})), {}, "float64", (4,), 0, [[0, 5, 0, 0], [0, 0, 0, 0]]),
    ("mixed vectors", vectors((3, {2: 5.0, 0: 1.0}), [7.0, 8.0, 9.0]), {"dtypes": "float32"}, "float32", (3,), 0, [[1, 0, 5], [7, 8, 9]]),
    ("vectors of any size", vectors([1.0], [2.0, 3.0]), {}, "float64", (), 1, [[1], [2, 3]]),
    ("null numbers", pa.array([1, None, 3]), {"null_value": -1}, "int64", (), 0, [1, -1, 3]),
    ("null booleans", pa.array([True, None]), {"null_value": False}, "bool", (), 0, [True, False]),
    ("null dates", pa.array([None, dt.date(1970, 1, 3)]), {"null_value": 0}, "int32", (), 0, [0, 2]),
    ("null decimals", pa.array([None], pa.decimal128(10, 2)), {"null_value": 0.5}, "float64", (), 0, [0.5]),
    ("null strings", pa.array(["a", None]), {"null_value": "?"}, "bytes", (), 0, [b"a", b"?"]),
    ("null bytes", pa.array([b"ab", None]), {"dtypes": "uint8", "null_value": 0}, "uint8", (2,), 0, [[97, 98], [0, 0]]),
    ("null arrays", pa.array([[1, 2], None]), {"null_value": 9}, "int64", (2,), 0, [[1, 2], [9, 9]]),
    ("null ragged arrays", pa.array([[1, 2], None, [3]]), {"null_value": 9}, "int64", (), 1, [[1, 2], [], [3]]),
    ("nulls in arrays", pa.array([[1, None], [None, 4]]), {"null_value": 0}, "int64", (2,), 0, [[1, 0], [0, 4]]),
    ("null inner arrays", pa.array([[[1, 2], None], [[3, 4], [5, 6]]]), {"null_value": 0}, "int64", (2, 2), 0, [[[1, 2], [0, 0]], [[3, 4], [5, 6]]]),
    ("null vectors", vectors([1.0, 2.0], None, (2, {1: 3.0})), {"null_value": 0}, "float64", (2,), 0, [[1, 2], [0, 0], [0, 3]]),
    ("only null arrays", pa.nulls(2, pa.list_(pa.int64())), {"null_value": 7, "shapes": (3,)}, "int64", (3,), 0, [[7, 7, 7]] * 2),
    ("empty arrays", pa.array([[], []], pa.list_(pa.int64())), {}, "int64", (0,), 0, [[], []]),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_a_type_becomes_its_tensor(tmp_path: Path, case: Any) -> None:
    _, array, column_options, dtype, shape, ragged, rows = case
    column = plan(array, **column_options)
    assert (column.dtype, column.shape, column.ragged) == (dtype, shape, ragged)
    wire = flat_arrays_of(column, array)
    assert rows_of(column, wire) == rows
    assert wire[0].dtype == (object if dtype == "bytes" else dtype)
    sliced = pa.concat_arrays([array, array]).slice(
        1, len(array)
    )  # arrays that begin in the middle of a buffer
    assert rows_of(column, flat_arrays_of(column, sliced)) == (rows + rows)[1 : len(rows) + 1]
    if can_view(column, observe(pa.RecordBatch.from_arrays([sliced], ["c"]))["c"]):
        assert view_of(column, sliced).tolist() == (rows + rows)[1 : len(rows) + 1]
    assert len(flat_arrays_of(column, array.slice(0, 0))[0]) == 0


@pytest.mark.parametrize("encrypts", [False, True])
@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_a_type_survives_the_spool_in_any_order(tmp_path: Path, case: Any, encrypts: bool) -> None:
    _, array, column_options, *_, rows = case
    count = 5 * len(array)
    whole = pa.RecordBatch.from_arrays([pa.array(range(count)), pa.concat_arrays([array] * 5)], [KEY, "c"])
    with SpoolWriter(tmp_path, chunk_bytes=1, encrypts=encrypts) as writer:
        for start in range(0, count, 2):
            writer.write(whole.slice(start, 2))
        file = writer.finish()
    spool = Spool(file, memory=100)
    file.close()
    columns = plan_columns(
        merge_shards([file.facts]),
        ColumnOptions(**{name: {"c": value} for name, value in column_options.items()}),
    )
    parts = group_columns(list(columns.values()))
    fetch = fetch_from(spool, parts)
    for order in (np.arange(count), np.random.default_rng(1).permutation(count), np.arange(0)):
        wire = fetch(order, 0, len(order))
        values = [wire[0][0], *wire[1:]] if parts[0].stacked else wire
        assert rows_of(columns["c"], values) == [rows[at % len(rows)] for at in order]


def test_structs_open_into_dotted_names_and_pass_their_nulls_on() -> None:
    batch = pa.RecordBatch.from_pydict({"s": [{"a": 1, "t": {"b": "x"}}, None], "n": [1, 2], KEY: [0, 1]})
    column_options = ColumnOptions(null_value={"s.a": 0, "s.t.b": ""})
    columns = plan_columns(facts_of(batch), column_options)
    assert list(columns) == ["s.a", "s.t.b", "n"]
    assert list(plan_columns(facts_of(batch), column_options, ["s"])) == ["s.a", "s.t.b"]
    assert [
        values.tolist() for values in flat_arrays_of_batch(group_columns(list(columns.values())), batch)
    ] == [
        [[1, 0], [1, 2]],
        [b"x", b""],
    ]
    with pytest.raises(DataError, match=r"'s\.a' must have no nulls.*rank 0: 1 of 2 rows"):
        plan_columns(facts_of(batch))


def test_nulls_are_named_by_column_rank_and_count() -> None:
    good = pa.RecordBatch.from_pydict({"x": pa.array([1, 2])})
    bad = pa.RecordBatch.from_pydict({"x": pa.array([1, None, None])})
    with pytest.raises(
        DataError, match=r"Column 'x' must have no nulls\. Received: nulls at rank 1: 2 of 3 rows"
    ) as caught:
        plan_columns(facts_of(good, bad, good))
    assert 'null_value={"x": 0}' in caught.value.fix


def test_a_row_of_another_length_between_least_and_most_is_found() -> None:
    array = pa.array([b"\1\2", b"\1\2\3", b"\1\2\3\4"])
    column = plan(array, dtypes="uint8", shapes=(None, 2))
    with pytest.raises(DataError, match="multiple of 2"):
        flat_arrays_of(column, array)


def test_ranks_agree_on_one_shape() -> None:
    two = pa.RecordBatch.from_pydict({"x": [[1, 2]]})
    three = pa.RecordBatch.from_pydict({"x": [[1, 2, 3]]})
    assert plan_columns(facts_of(two, two))["x"].shape == (2,)
    assert plan_columns(facts_of(two, three))["x"].ragged == 1
    assert plan_columns(merge_shards([shard_of(two), ShardFacts()]))["x"].shape == (2,)


@pytest.mark.parametrize(
    ("array", "column_options", "error", "match"),
    [
        (pa.array([[1], [2, 3]]), {"shapes": (2,)}, DataError, "lengths .1 to 2."),
        (pa.array([[1, 2]]), {"shapes": (3,)}, DataError, "shape .3,"),
        (pa.array([[], []], pa.list_(pa.int64())), {"shapes": (3,)}, DataError, "shape .3,"),
        (pa.array([b"abc"]), {"dtypes": "float32"}, DataError, "multiple of 4 bytes"),
        (pa.array(["a"]), {"dtypes": "float32"}, ConfigError, "dtypes"),
        (pa.array([1]), {"dtypes": "florp"}, ConfigError, "florp"),
        (pa.array([1, None]), {"null_value": "x"}, ConfigError, "null_value"),
        (pa.array([[{"a": 1}]]), {}, DataError, "list<"),
        (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), {}, DataError, "map<"),
        (pa.nulls(2), {"null_value": 0}, DataError, "null"),
        (vectors((3, {0: 1.0}), [1.0]), {}, DataError, "vectors of one size"),
    ],
)
def test_what_no_tensor_can_hold_is_said(array: Any, column_options: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        plan(array, **column_options)


@pytest.mark.parametrize("option", ["shapes", "dtypes", "null_value"])
def test_wishes_for_unknown_columns_are_refused(option: str) -> None:
    batch = pa.RecordBatch.from_pydict({"x": [1]})
    with pytest.raises(ConfigError, match=f"`{option}` must name columns"):
        plan_columns(facts_of(batch), ColumnOptions(**{option: {"y": 1}}))


def test_rows_that_come_later_must_fit() -> None:
    column = plan(pa.array([[1, 2]]))
    check_fit(column, ColumnFacts(lengths=((2, 2),)), rank=0)
    with pytest.raises(DataError, match="as the first rows did"):
        check_fit(column, ColumnFacts(lengths=((1, 2),)), rank=0)
    with pytest.raises(DataError, match="3 nulls at rank 4"):
        check_fit(column, ColumnFacts(nulls=3, lengths=((2, 2),)), rank=4)


@settings(deadline=None)  # the first call imports parts of pyarrow
@given(
    rows=st.lists(st.lists(st.lists(st.integers(-9, 9), max_size=3), max_size=3), min_size=1, max_size=8),
    start=st.integers(0, 8),
)
def test_any_nested_lists_come_back(rows: list[list[list[int]]], start: int) -> None:
    array = pa.array(rows, pa.list_(pa.list_(pa.int64()))).slice(min(start, len(rows) - 1))
    column = plan(array)
    assert rows_of(column, flat_arrays_of(column, array)) == array.to_pylist()


def test_a_new_arrow_type_is_one_entry_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = ElementType(matches=pa.types.is_run_end_encoded, dtype="int64", to_numbers=pc.run_end_decode)
    monkeypatch.setattr(element_types, "ELEMENT_TYPES", (*element_types.ELEMENT_TYPES, entry))
    array = pc.run_end_encode(pa.array([3, 3, 7]))
    assert flat_arrays_of(plan(array), array)[0].tolist() == [3, 3, 7]
    digests = [digest_of(pa.RecordBatch.from_arrays([array.slice(row, 1)], ["x"])) for row in range(3)]
    assert digests[0] == digests[1] != digests[2]
