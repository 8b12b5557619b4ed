"""Everyday mistakes in an estimator's data: named by column, value and remedy before the first step."""

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.ml.linalg import VectorUDT
from pyspark.sql.types import ArrayType, FloatType, StringType, StructField, StructType

from emberflow._feed.padding import Padding, PadOptions
from emberflow._feed.shard_facts import ShardFacts, observe
from emberflow._feed.shards import merge_shards
from emberflow._feed.tensor_columns import ColumnOptions, plan_columns
from emberflow._score.model_facts import Tensor
from emberflow.errors import ConfigError, DataError
from emberflow.ml.model_columns import TrainingColumns
from emberflow.ml.padded_columns import columns_to_pad
from emberflow.ml.row_checks import check_features
from emberflow.ml.schema_checks import check_columns, check_inputs

KINDS = {
    "features": "array<float>",
    "label": "int",
    "name": "string",
    "tags": "array<string>",
    "w": "double",
    "held": "boolean",
}
COLUMNS = TrainingColumns(features=("x",), labels=("y",))
FOUR = Tensor(name="image", dtype="float32", shape=(4,), rows=None)


def check(**given: Any) -> None:
    frame: Any = SimpleNamespace(columns=list(KINDS), dtypes=list(KINDS.items()))
    usual = {"features": ["features"], "labels": ["label"], "weight": None, "indicator": None}
    check_columns(frame, **(usual | given))


def test_columns_that_can_be_used_pass() -> None:
    check(weight="w", indicator="held", features=["features", "name"])


@pytest.mark.parametrize(
    ("given", "said", "fix"),
    [
        ({"labels": ["lable"]}, "without ['lable']", "Did you mean 'label'?"),
        ({"indicator": "hold"}, "without ['hold']", "Did you mean 'held'?"),
        (
            {"labels": ["name"]},
            "'name' of type string",
            'StringIndexer(inputCol="name", outputCol="nameIndex")',
        ),
        ({"labels": ["tags"]}, "'tags' of type array<string>", "StringIndexer"),
        ({"weight": "name"}, "'name' of type string", 'cast("float")'),
        ({"weight": "features"}, "one number in each row", 'cast("float")'),
        ({"indicator": "label"}, "'label' of type int", 'cast("boolean")'),
    ],
)
def test_what_the_schema_tells_is_said_before_anything_starts(given: Any, said: str, fix: str) -> None:
    with pytest.raises((ConfigError, DataError)) as caught:
        check(**given)
    assert said in caught.value.problem
    assert fix in caught.value.fix


def field_of(kind: Any, size: int | None = None) -> StructType:
    return StructType([StructField("x", kind, metadata={"ml_attr": {"num_attrs": size}} if size else {})])


def test_the_size_of_vectors_that_spark_knows_must_be_the_model_s() -> None:
    check_inputs(field_of(VectorUDT(), 4), COLUMNS, [FOUR])
    check_inputs(field_of(VectorUDT()), COLUMNS, [FOUR])
    check_inputs(field_of(ArrayType(FloatType())), COLUMNS, [FOUR])
    with pytest.raises(DataError, match=r"must hold 4 values in each row.*vectors of size 3") as caught:
        check_inputs(field_of(VectorUDT(), 3), COLUMNS, [FOUR])
    assert "keras.Input(shape=(3,))" in caught.value.fix


def test_text_needs_an_input_of_text() -> None:
    check_inputs(field_of(StringType()), COLUMNS, [Tensor(name="t", dtype="bytes", shape=())])
    with pytest.raises(DataError, match=r"which takes float32\. Received: string") as caught:
        check_inputs(field_of(StringType()), COLUMNS, [FOUR])
    assert "StringIndexer" in caught.value.fix


def shards_of(*ranks: Any, kind: Any = None) -> Any:
    batches = [pa.RecordBatch.from_arrays([pa.array(rows, kind)], ["x"]) for rows in ranks]
    return merge_shards(
        ShardFacts(rows=batch.num_rows, schema=batch.schema, columns=observe(batch)) for batch in batches
    )


def test_rows_of_another_width_are_named_with_their_rank() -> None:
    check_features(shards_of([[1.0] * 4], [[2.0] * 4]), COLUMNS, [FOUR])
    with pytest.raises(DataError, match="Received: rows of 3 values") as caught:
        check_features(shards_of([[1.0] * 3], [[2.0] * 3]), COLUMNS, [FOUR])
    assert "keras.Input(shape=(3,))" in caught.value.fix
    with pytest.raises(DataError, match="rows of 3 to 4 values, 3 at rank 1"):
        check_features(shards_of([[1.0] * 4], [[2.0] * 3]), COLUMNS, [FOUR])
    with pytest.raises(DataError, match="rows of 4 to 9 values, 9 at rank 2"):
        check_features(shards_of([[1.0] * 4], [[2.0] * 4], [[1.0] * 9]), COLUMNS, [FOUR])


def test_columns_that_are_concatenated_must_have_the_width_together() -> None:
    both = TrainingColumns(features=("x", "x"), labels=())
    check_features(shards_of([[1.0, 2.0]]), both, [FOUR])
    with pytest.raises(DataError, match="2 columns with 6 values together"):
        check_features(shards_of([[1.0, 2.0, 3.0]]), both, [FOUR])


def test_text_of_the_rows_needs_an_input_of_text() -> None:
    with pytest.raises(DataError, match="must hold numbers for input 'image'"):
        check_features(shards_of(["a"]), COLUMNS, [FOUR])
    check_features(shards_of(["a"]), COLUMNS, [Tensor(name="t", dtype="bytes", shape=())])


ANY = Tensor(name="tokens", dtype="int32", shape=(None,))


@pytest.mark.parametrize(
    ("inputs", "pad_to", "expected"),
    [
        ([ANY], "longest", 3),
        ([], "longest", 3),  # a model that is built by its first batch
        ([ANY], "batch", "batch"),
        ([ANY], 8, 8),
        ([FOUR], "longest", None),  # rows of another width than the model's are more likely a mistake
        ([FOUR], 4, 4),
        ([FOUR], 5, None),
    ],
)
def test_arrays_of_different_lengths_are_padded_where_the_model_takes_them(
    inputs: Any, pad_to: Any, expected: Any
) -> None:
    train, validation = shards_of([[1], [1, 2]], [[7]]), shards_of([[1, 2, 3]])
    found = columns_to_pad([train, validation], COLUMNS, inputs, pad_to)
    assert found == ({} if expected is None else {"x": expected})


def test_arrays_of_one_length_and_other_columns_are_not_padded() -> None:
    assert columns_to_pad([shards_of([[1, 2], [3, 4]])], COLUMNS, [ANY], "longest") == {}
    assert columns_to_pad([shards_of([1, 2])], COLUMNS, [ANY], "longest") == {}
    assert columns_to_pad([shards_of([[1] * 4])], COLUMNS, [FOUR], 4) == {}
    assert columns_to_pad([shards_of([[1, 2]])], COLUMNS, [ANY], 4) == {"x": 4}


def test_rows_that_are_padded_need_not_have_the_model_s_width() -> None:
    mixed = shards_of([[1.0] * 4], [[2.0] * 3])
    check_features(mixed, COLUMNS, [FOUR], padded={"x": 4})
    with pytest.raises(DataError) as caught:
        check_features(mixed, COLUMNS, [FOUR])
    assert "padTo=4" in caught.value.fix


def plan(*ranks: Any, kind: Any = None, **given: Any) -> Any:
    options = ColumnOptions(pad=PadOptions(**given))
    return plan_columns(shards_of(*ranks, kind=kind), options)["x"]


def test_a_padded_column_has_the_length_of_the_longest_row_or_the_given_one() -> None:
    assert plan([[1], [1, 2]], [[7]], pad_to={"x": "longest"}).padding == Padding(lengths=(2,), value=0)
    assert plan([[1, 2]], pad_to={"x": "longest"}).padding is None  # dense already
    assert plan([[1, 2]], pad_to={"x": 4}, pad_value={"x": 7}).padding == Padding(lengths=(4,), value=7)
    assert plan([["a"], []], pad_to={"x": "batch"}).padding == Padding(lengths=(None,), value=b"")
    nested = plan([[[1], [2, 3]], [[4]]], pad_to={"x": 5})
    assert nested.padding == Padding(lengths=(5, 2), value=0)
    with pytest.raises(DataError, match=r"at most 2 values in each row.*a row of 3 values at rank 1"):
        plan([[1]], [[1, 2, 3]], pad_to={"x": 2})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"pad_to": {"x": 0}}, "must be a whole number"),
        ({"pad_to": {"x": "longer"}}, "must be a whole number"),
        ({"pad_to": {"z": 3}}, "`pad_to` must name columns of the data"),
        ({"pad_value": {"x": 3}}, "`pad_value` needs `pad_to`"),
        ({"pad_to": {"x": 3}, "pad_value": {"x": "a"}}, "must fit the column's type"),
    ],
)
def test_wrong_options_of_padding_are_refused(given: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan([[1], []], **given)
    with pytest.raises(ConfigError, match="is for columns of arrays"):
        plan([1], pad_to={"x": 3})
