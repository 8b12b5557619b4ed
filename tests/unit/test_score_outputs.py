"""What a model gives, as Arrow columns of the planned types."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from emberflow._score.model_facts import ModelFacts, Tensor
from emberflow._score.output_plan import OutputChoice, OutputPlan, arrow_of, check_type, choose_outputs
from emberflow.errors import ConfigError, DataError, ModelError


def arrow(kind: Any, value: Any, rows: int = 2) -> Any:
    array = arrow_of(OutputPlan(name="output_0", column="p", type=kind), value, rows)
    assert array.type == kind
    array.validate(full=True)
    return array.to_pylist()


def element(kind: Any) -> Any:
    return pa.list_(pa.field("element", kind))


@pytest.mark.parametrize(
    ("kind", "value", "rows"),
    [
        (pa.float32(), np.array([1.5, 2.5], np.float32), [1.5, 2.5]),
        (pa.float32(), np.array([[1.5], [2.5]], np.float32), [1.5, 2.5]),
        (pa.float64(), np.array([1.5, 2.5], np.float32), [1.5, 2.5]),
        (element(pa.float32()), np.array([[1], [2]], np.float32), [[1.0], [2.0]]),
        (
            element(element(pa.int32())),
            np.arange(8, dtype=np.int32).reshape(2, 2, 2),
            [[[0, 1], [2, 3]], [[4, 5], [6, 7]]],
        ),
        (element(pa.int64()), np.arange(8).reshape(2, 2, 2), [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (pa.string(), np.array([b"a", "ä".encode()], object), ["a", "ä"]),
        (pa.string(), np.array(["a", "b"]), ["a", "b"]),
        (pa.binary(), np.array([b"\xff", b""], object), [b"\xff", b""]),
        (element(pa.string()), np.array([[b"a"], [b"b"]], object), [["a"], ["b"]]),
        (pa.bool_(), np.array([True, False]), [True, False]),
        (pa.int16(), np.array([0, 255], np.uint8), [0, 255]),
        (pa.float32(), np.array([1, 2], np.float16), [1.0, 2.0]),
        (element(pa.float32()), np.zeros((2, 0), np.float32), [[], []]),
    ],
)
def test_arrays_become_columns(kind: Any, value: Any, rows: list[Any]) -> None:
    assert arrow(kind, value) == rows


def test_large_lists_of_sessions_with_large_types() -> None:
    kind = pa.large_list(pa.field("element", pa.float32()))
    assert arrow(kind, np.array([[1], [2]], np.float32)) == [[1.0], [2.0]]


def test_unsigned_64_bits_keep_their_value() -> None:
    assert [int(value) for value in arrow(pa.decimal128(20, 0), np.array([2**64 - 1, 0], np.uint64))] == [
        2**64 - 1,
        0,
    ]


def test_strings_that_are_not_text_say_so() -> None:
    with pytest.raises(DataError, match="declared as string") as caught:
        arrow(pa.string(), np.array([b"\xff", b"a"], object))
    assert '("p", "binary")' in caught.value.fix


def test_rows_must_stay_rows() -> None:
    with pytest.raises(ModelError, match=r"one value per row. Received: shape \(3,\) for 2 rows"):
        arrow(pa.float32(), np.zeros(3, np.float32))
    with pytest.raises(ModelError, match="with 0 dimensions per row"):
        arrow(pa.float32(), np.zeros((2, 3), np.float32))


def test_fractions_are_not_cut_off() -> None:
    with pytest.raises(DataError, match="float32 values"):
        arrow(pa.int32(), np.array([1.5, 2.5], np.float32))


class FakeRagged:
    """What tf.RaggedTensor shows of itself."""

    def __init__(self, values: Any, *splits: list[int]) -> None:
        self.flat_values = np.asarray(values)
        self.nested_row_splits = [np.array(level) for level in splits]


def test_ragged_tensors_become_lists() -> None:
    assert arrow(element(pa.int64()), FakeRagged([1, 2, 3], [0, 1, 3])) == [[1], [2, 3]]
    assert arrow(element(element(pa.int64())), FakeRagged([[1, 2], [3, 4]], [0, 2, 2])) == [
        [[1, 2], [3, 4]],
        [],
    ]


TWO = ModelFacts(
    kind="keras",
    inputs=(),
    outputs=(
        Tensor(name="digit", dtype="float32", shape=(10,)),
        Tensor(name="color", dtype="bytes", shape=()),
    ),
)
ONE = ModelFacts(kind="keras", inputs=(), outputs=TWO.outputs[:1])


def columns(model: ModelFacts, outputs: Any) -> list[tuple[str, str]]:
    return [(choice.name, choice.column) for choice in choose_outputs(model, outputs)]


def test_outputs_by_default_by_name_and_by_place() -> None:
    assert columns(ONE, None) == [("digit", "prediction")]
    assert columns(TWO, None) == [("digit", "digit"), ("color", "color")]
    assert columns(ONE, "scores") == [("digit", "scores")]
    assert columns(TWO, ["color"]) == [("color", "color")]
    assert columns(TWO, {"output_1": "c", "digit": ("d", "array<double>")}) == [
        ("color", "c"),
        ("digit", "d"),
    ]


@pytest.mark.parametrize("outputs", ["both", {"shade": "s"}, ["output_2"], {"digit": 3}])
def test_unknown_outputs_are_refused(outputs: Any) -> None:
    with pytest.raises(ConfigError, match="`outputs` must name"):
        columns(TWO, outputs)


@pytest.mark.parametrize(
    ("kind", "fits"),
    [
        (pa.list_(pa.float64()), True),
        (pa.list_(pa.int32()), False),
        (pa.float32(), False),
        (pa.list_(pa.string()), False),
    ],
)
def test_declared_types_must_fit_the_output(kind: Any, *, fits: bool) -> None:
    choice = OutputChoice(name="digit", column="d", type="declared")
    if fits:
        check_type(ONE, choice, kind)
        return
    with pytest.raises(ConfigError, match="must fit the model's output digit"):
        check_type(ONE, choice, kind)
