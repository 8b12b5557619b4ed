"""Everyday mistakes in an estimator's data: named by column, value and remedy before the first step."""

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.ml.linalg import VectorUDT
from pyspark.sql.types import ArrayType, FloatType, StringType, StructField, StructType

from emberflow._feed.shard_facts import ShardFacts, observe
from emberflow._feed.shards import merge_shards
from emberflow._score.model_facts import Tensor
from emberflow.errors import ConfigError, DataError
from emberflow.ml.model_columns import TrainingColumns
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
