"""Columns to inputs: what fits is planned, what does not is refused before anything runs."""

from typing import Any

import pyarrow as pa
import pytest

from emberflow._score.input_matching import Inputs
from emberflow._score.input_plan import InputOptions, InputPlan, plan_inputs
from emberflow._score.model_facts import ModelFacts, Tensor
from emberflow.errors import ConfigError, DataError, ModelError

IMAGE = Tensor(name="image", dtype="float32", shape=(28, 28))
SCHEMA = pa.schema(
    {
        "flat": pa.list_(pa.float32()),
        "square": pa.list_(pa.list_(pa.float64())),
        "blob": pa.binary(),
        "text": pa.string(),
        "age": pa.int32(),
        "big": pa.int64(),
        "real": pa.float64(),
        "inner": pa.struct({"a": pa.float32(), "b": pa.float32()}),
        "map": pa.map_(pa.string(), pa.int32()),
    }
)


def plan(
    tensors: list[Tensor],
    inputs: Inputs,
    *,
    schema: Any = SCHEMA,
    kind: str = "keras",
    shapes: Any = None,
    dtypes: Any = None,
) -> tuple[InputPlan, ...]:
    facts = ModelFacts(kind=kind, inputs=tuple(tensors), outputs=())
    return plan_inputs(schema, facts, inputs, InputOptions(shapes=shapes or {}, dtypes=dtypes or {}))


def vector(size: int | None, dtype: str = "float32") -> Tensor:
    return Tensor(name="x", dtype=dtype, shape=(size,))


def test_a_flat_column_takes_the_shape_of_the_input() -> None:
    (found,) = plan([IMAGE], "flat")
    assert (found.name, found.dtype, found.shape) == ("image", "float32", (28, 28))
    assert found.columns[0].lengths == (784,)


def test_a_nested_column_is_checked_level_by_level() -> None:
    assert plan([IMAGE], "square")[0].columns[0].lengths == (28, 28)


def test_dimensions_of_one_may_be_missing() -> None:
    tensor = Tensor(name="x", dtype="float32", shape=(28, 28, 1))
    assert plan([tensor], "square")[0].columns[0].lengths == (28, 28)
    assert plan([vector(1)], "real")[0].columns[0].lengths == ()


def test_binary_holds_the_inputs_numbers_or_declared_ones() -> None:
    assert (plan([IMAGE], "blob")[0].columns[0].stored, plan([IMAGE], "blob")[0].columns[0].decode) == (
        "float32",
        True,
    )
    (found,) = plan([IMAGE], "blob", dtypes={"blob": "uint8"})
    assert (found.dtype, found.columns[0].stored, found.columns[0].lengths) == ("float32", "uint8", (784,))


def test_binary_stays_a_string_for_a_string_input() -> None:
    (found,) = plan([Tensor(name="x", dtype="bytes", shape=())], "blob")
    assert not found.columns[0].decode


def test_inputs_are_found_by_name_or_by_being_the_only_one() -> None:
    named = pa.schema({"age": pa.int32(), "x": pa.list_(pa.float32())})
    assert plan([vector(3)], None, schema=named)[0].columns[0].leaf.name == "x"
    lonely = pa.schema({"y": pa.list_(pa.float32())})
    assert plan([vector(3)], None, schema=lonely)[0].columns[0].leaf.name == "y"


def test_fields_of_structs_are_columns() -> None:
    assert plan([vector(1)], "inner.a")[0].columns[0].leaf.path == ("inner", "a")


def test_columns_side_by_side() -> None:
    (found,) = plan([vector(3)], ["age", "real", "inner.b"])
    assert [column.lengths for column in found.columns] == [(), (), ()]
    (found,) = plan([vector(12)], ["age", "flat", "real"])
    assert [column.lengths for column in found.columns] == [(), (10,), ()]


def test_narrowing_is_checked_and_widening_is_not() -> None:
    assert plan([Tensor(name="x", dtype="int32", shape=())], "big")[0].columns[0].limits == (
        -(2**31),
        2**31 - 1,
    )
    assert plan([Tensor(name="x", dtype="int64", shape=())], "age")[0].columns[0].limits is None
    assert plan([Tensor(name="x", dtype="float32", shape=())], "big")[0].columns[0].limits is None


def test_a_function_takes_columns_as_they_are() -> None:
    found = plan([], {"a": "big", "b": "flat"}, kind="function")
    assert [(one.name, one.dtype, one.shape) for one in found] == [
        ("a", "int64", ()),
        ("b", "float32", (None,)),
    ]


def test_declared_shapes_fill_what_the_model_leaves_open() -> None:
    (found,) = plan([Tensor(name="x", dtype="float32", shape=(None, 4))], "flat", shapes={"flat": (3, 4)})
    assert (found.shape, found.columns[0].lengths) == ((3, 4), (12,))


@pytest.mark.parametrize(
    ("tensors", "inputs", "words"),
    [
        ([IMAGE], "nowhere", "Received: 'nowhere'"),
        ([IMAGE], None, "no columns of these names"),
        ([IMAGE], {"picture": "flat"}, "inputs for picture"),
        (
            [IMAGE, vector(3)],
            "flat",
            "Inputs: image (float32 of shape (28, 28)), x (float32 of shape (3,))",
        ),
        ([IMAGE], "text", "Column 'text' must have a type"),
        ([IMAGE], "age", "rows of shape (28, 28)"),
        ([vector(3, "int32")], "flat", "(int32 of shape (3,)). Received: list<item: float>"),
        ([vector(3)], ["age", "real"], "as many values as the input"),
        ([vector(3)], ["flat", "square"], "as many values as the input"),
        ([IMAGE], ["age", "real"], "side by side"),
        ([vector(2)], "inner", "inner.a, inner.b"),
        ([vector(2)], [], "must name columns"),
    ],
)
def test_what_does_not_fit_is_named(tensors: list[Tensor], inputs: Inputs, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(tensors, inputs)
    assert words in str(caught.value)
    assert caught.value.fix


def test_types_without_a_tensor_are_refused() -> None:
    with pytest.raises(DataError, match="Column 'map'"):
        plan([vector(3)], "map")


def test_declarations_must_fit() -> None:
    with pytest.raises(ConfigError, match="`shapes` must name input columns of the model"):
        plan([vector(3)], "flat", shapes={"text": (3,)})
    with pytest.raises(ConfigError, match="must agree with the model"):
        plan([vector(3)], "flat", shapes={"flat": (4,)})
    with pytest.raises(ConfigError, match="must name a dtype of numbers"):
        plan([IMAGE], "blob", dtypes={"blob": "pixels"})


@pytest.mark.parametrize(
    "tensor", [Tensor(name="x", dtype="sparse"), Tensor(name="x", dtype="float32", has_rows=False)]
)
def test_inputs_that_no_rows_can_fill_are_refused(tensor: Tensor) -> None:
    with pytest.raises(ModelError, match="The model's input 'x' must"):
        plan([tensor], "flat")
