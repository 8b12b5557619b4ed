"""Rows to arrays: the right values in the right shapes, and every row that does not fit with its reason."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberflow._score.input_matching import Inputs
from emberflow._score.input_plan import InputOptions, plan_inputs
from emberflow._score.input_rows import Ragged, RowGroup, row_groups
from emberflow._score.model_facts import ModelFacts, Tensor
from emberflow.errors import ConfigError

FLOATS = pa.list_(pa.float32())
VECTOR = pa.struct(
    [
        ("type", pa.int8()),
        ("size", pa.int32()),
        ("indices", pa.list_(pa.int32())),
        ("values", pa.list_(pa.float64())),
    ]
)


def grouped(
    tensors: list[Tensor], inputs: Inputs, columns: dict[str, Any], **input_options: Any
) -> tuple[list[RowGroup], dict[int, str]]:
    batch = pa.RecordBatch.from_pydict(columns)
    facts = ModelFacts(kind="keras" if tensors else "function", inputs=tuple(tensors), outputs=())
    plans = plan_inputs(
        batch.schema, facts, inputs, InputOptions(**({"shapes": {}, "dtypes": {}} | input_options))
    )
    return row_groups(plans, batch)


def one(
    shape: tuple[int | None, ...] | None,
    column: Any,
    dtype: str = "float32",
    *,
    is_ragged: bool = False,
    **input_options: Any,
) -> tuple[list[RowGroup], dict[int, str]]:
    tensor = Tensor(name="x", dtype=dtype, shape=shape, is_ragged=is_ragged)
    return grouped([tensor], "c", {"c": column}, **input_options)


def test_flat_rows_take_their_shape() -> None:
    (group,), bad = one((2, 3), pa.array([list(range(6)), list(range(6, 12))], FLOATS))
    assert not bad
    assert group.rows is None
    assert group.arrays["x"].dtype == np.float32
    np.testing.assert_array_equal(group.arrays["x"], np.arange(12).reshape(2, 2, 3))


def test_plain_rows_are_not_copied() -> None:
    column = pa.array([[1.0, 2.0], [3.0, 4.0]], FLOATS)
    (group,), _ = one((2,), column)
    assert np.shares_memory(group.arrays["x"], np.frombuffer(column.values.buffers()[1], np.float32))


def test_nulls_lengths_and_inner_nulls_are_told_apart() -> None:
    column = pa.array([[1.0, 2.0], None, [1.0], [1.0, None], [5.0, 6.0], [1.0, 2.0, 3.0]], FLOATS)
    (group,), bad = one((2,), column)
    np.testing.assert_array_equal(group.arrays["x"], [[1, 2], [5, 6]])
    np.testing.assert_array_equal(group.rows, [0, 4])
    assert {row: reason.rpartition("Received: ")[2] for row, reason in bad.items()} == {
        1: "null.",
        2: "1 values.",
        3: "a null inside.",
        5: "3 values.",
    }
    assert bad[1].startswith("Column 'c' must hold float32 of shape (2,).")


def test_no_row_fits() -> None:
    groups, bad = one((2,), pa.array([None, [1.0]], FLOATS))
    assert groups == []
    assert sorted(bad) == [0, 1]


def test_nested_lists_are_checked_inside() -> None:
    column = pa.array(
        [[[1, 2], [3, 4]], [[1, 2], [3]], [[1, 2], None], [[1, 2]]], pa.list_(pa.list_(pa.int32()))
    )
    (group,), bad = one((2, 2), column)
    np.testing.assert_array_equal(group.arrays["x"], [[[1, 2], [3, 4]]])
    assert "1 values at dimension 2" in bad[1]
    assert "a null inside" in bad[2]
    assert "Received: 1 values." in bad[3]


def test_open_lengths_make_groups_and_keep_their_places() -> None:
    column = pa.array([[1.0], [1.0, 2.0], [3.0], None, [3.0, 4.0]], FLOATS)
    groups, bad = one((None,), column)
    assert list(bad) == [3]
    assert [
        (group.rows.tolist(), group.arrays["x"].tolist()) for group in groups if group.rows is not None
    ] == [
        ([0, 2], [[1], [3]]),
        ([1, 4], [[1, 2], [3, 4]]),
    ]


def test_lists_of_one_row_must_agree_where_a_length_is_open() -> None:
    column = pa.array([[[1], [2]], [[1, 2], [3]], []], pa.list_(pa.list_(pa.float32())))
    groups, bad = one((None, None), column)
    assert list(bad) == [1]
    assert [group.arrays["x"].shape for group in groups] == [(1, 0, 0), (1, 2, 1)]


def test_ragged_inputs_keep_their_lengths() -> None:
    (group,), bad = one((None,), pa.array([[1, 2], [], [3]], pa.list_(pa.int64())), "int64", is_ragged=True)
    assert not bad
    ragged = group.arrays["x"]
    assert isinstance(ragged, Ragged)
    assert (ragged.values.tolist(), ragged.splits[0].tolist()) == ([1, 2, 3], [0, 2, 2, 3])


def test_binary_numbers() -> None:
    rows = [np.arange(4, dtype=np.uint8).tobytes(), b"\x01", np.arange(4, 8, dtype=np.uint8).tobytes(), None]
    (group,), bad = one((2, 2), pa.array(rows, pa.binary()), dtypes={"c": "uint8"})
    np.testing.assert_array_equal(group.arrays["x"], [[[0, 1], [2, 3]], [[4, 5], [6, 7]]])
    assert group.arrays["x"].dtype == np.float32
    assert "4 uint8 values in binary" in bad[1]
    _, bad = one((2,), pa.array([b"123"], pa.binary()))
    assert "Received: 3 bytes." in bad[0]


def test_numbers_out_of_range() -> None:
    (group,), bad = one((), pa.array([1, 2**40, -3], pa.int64()), "int32")
    assert group.arrays["x"].tolist() == [1, -3]
    assert "1099511627776, which int32 cannot hold" in bad[1]
    (group,), bad = one((2,), pa.array([[1, 2], [3, 300]], pa.list_(pa.int32())), "uint8")
    assert list(bad) == [1]


def test_strings() -> None:
    (group,), bad = one((), pa.array(["ä", None, ""], pa.string()), "bytes")
    assert group.arrays["x"].tolist() == ["ä".encode(), b""]
    assert "must hold one string. Received: null." in bad[1]


def test_vectors_dense_and_sparse() -> None:
    rows = [
        {"type": 1, "size": None, "indices": None, "values": [1.0, 2.0, 3.0]},
        {"type": 0, "size": 3, "indices": [1], "values": [9.0]},
        {"type": 0, "size": 4, "indices": [1], "values": [9.0]},
        {"type": 1, "size": None, "indices": None, "values": [1.0]},
        None,
    ]
    (group,), bad = one((3,), pa.array(rows, VECTOR))
    assert group.arrays["x"].tolist() == [[1, 2, 3], [0, 9, 0]]
    assert sorted(bad) == [2, 3, 4]
    assert "Received: 4 values." in bad[2]


def test_columns_side_by_side_in_order() -> None:
    columns = {"a": pa.array([1, 2], pa.int32()), "b": pa.array([[5, 6], [7, 8]], pa.list_(pa.int64()))}
    (group,), _ = grouped([Tensor(name="x", dtype="float32", shape=(3,))], ["b", "a"], columns)
    assert group.arrays["x"].tolist() == [[5, 6, 1], [7, 8, 2]]


def test_the_first_reason_of_a_row_counts_and_all_inputs_lose_it() -> None:
    tensors = [Tensor(name="p", dtype="float32", shape=()), Tensor(name="q", dtype="float32", shape=())]
    columns = {"p": pa.array([1.0, None, 3.0]), "q": pa.array([None, None, 6.0])}
    (group,), bad = grouped(tensors, None, columns)
    assert {name: array.tolist() for name, array in group.arrays.items()} == {"p": [3.0], "q": [6.0]}
    assert [bad[0][:10], bad[1][:10]] == ["Column 'q'", "Column 'p'"]


@settings(deadline=None)
@given(
    st.lists(st.none() | st.lists(st.none() | st.integers(-9, 9), max_size=4), min_size=1, max_size=12),
    st.integers(0, 4),
    st.integers(0, 3),
)
def test_rows_are_good_or_bad_as_python_sees_them(rows: list[Any], size: int, skip: int) -> None:
    array = pa.array([[0]] * skip + rows, pa.list_(pa.int32())).slice(skip)
    groups, bad = one((size,), array)
    fits = [row is not None and len(row) == size and None not in row for row in rows]
    assert sorted(bad) == [at for at, fit in enumerate(fits) if not fit]
    got = [list(values) for group in groups for values in group.arrays["x"].tolist()]
    assert got == [row for row, fit in zip(rows, fits, strict=True) if fit]


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint16(), pa.float64(), pa.bool_(), pa.decimal128(9, 2)])
def test_any_number_becomes_the_inputs_dtype(kind: Any) -> None:
    (group,), _ = one((), pa.array([0, 1], pa.int8()).cast(kind))
    assert group.arrays["x"].dtype == np.float32
    assert group.arrays["x"].tolist() == [0.0, 1.0]


def test_arrays_are_padded_as_in_training_and_longer_ones_keep_their_length() -> None:
    column = pa.array([[1, 2], [3], [4, 5, 6, 7], []], FLOATS)
    groups, bad = one((None,), column, pad_to={"c": 3}, pad_value={"c": -1})
    assert not bad
    found = {
        tuple(group.rows.tolist()): group.arrays["x"].tolist() for group in groups if group.rows is not None
    }
    assert found == {(0, 1, 3): [[1, 2, -1], [3, -1, -1], [-1, -1, -1]], (2,): [[4, 5, 6, 7]]}


def test_arrays_are_padded_to_the_length_of_the_model() -> None:
    (group,), bad = one((3,), pa.array([[1, 2, 3], [4], [1, 2, 3, 4]], FLOATS), pad_to={"c": 3})
    assert group.arrays["x"].tolist() == [[1, 2, 3], [4, 0, 0]]
    assert list(bad) == [2]
    _, bad = one((3,), pa.array([[1, 2, 3], [4]], FLOATS))
    assert list(bad) == [1]


def test_arrays_of_arrays_and_of_text_are_padded() -> None:
    column = pa.array([[[1, 2]], [[3, 4], [5, 6]]], pa.list_(FLOATS))
    (group,), _ = one((None, 2), column, pad_to={"c": 2})
    assert group.arrays["x"].tolist() == [[[1, 2], [0, 0]], [[3, 4], [5, 6]]]
    (group,), _ = one(
        (None,), pa.array([["a"], ["b", "c"]]), "bytes", pad_to={"c": 2}, pad_value={"c": "none"}
    )
    assert group.arrays["x"].tolist() == [[b"a", b"none"], [b"b", b"c"]]


def test_only_arrays_are_padded() -> None:
    with pytest.raises(ConfigError, match="is for columns of arrays"):
        one((), pa.array([1.0]), pad_to={"c": 3})
    with pytest.raises(ConfigError, match="must be a whole number"):
        one((None,), pa.array([[1.0]], FLOATS), pad_to={"c": 0})
