"""Every column type from Spark to a tensor, on real clusters."""

from typing import TYPE_CHECKING, Any

import pytest

import emberflow as ef
from emberflow.errors import DataError
from tests.tensorflow.feed_frames import typed_frame, typed_tensors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.usefixtures("nothing_left")

ROWS = 41
SPECS = {
    "byte": "int8", "short": "int16", "int": "int32", "float": "float32", "double": "float64",
    "boolean": "bool", "string": "string", "decimal": "float64", "date": "int32", "timestamp": "int64",
    "raw": "string", "pixels": "uint8 (2, 2)", "fixed": "float32 (3,)", "ragged": "int32 ragged 1",
    "nested": "int32 (2,) ragged 1", "words": "string ragged 1", "struct.a": "int32", "struct.inner.b": "string",
    "holes": "float64", "gaps": "int32 (2,)", "dense": "float64 (2,)", "sparse": "float64 (3,)", "id": "int64",
}  # fmt: skip


def spec_of(spec: Any) -> str:
    """Say a tensor's type, the shape of one row, and its ragged levels."""
    ragged = getattr(spec, "ragged_rank", 0)
    shape = tuple(spec.shape[ragged + 1 :])
    return f"{spec.dtype.name}{f' {shape}' if shape else ''}{f' ragged {ragged}' if ragged else ''}"


def read_types(ctx: Any) -> Any:
    try:
        ctx.dataset(columns=["id", "holes"], batch_size=4)
    except DataError as error:
        refused = error.problem
    dataset = ctx.dataset(
        batch_size=4,
        dtypes={"pixels": "uint8"},
        shapes={"pixels": (2, 2)},
        null_value={"holes": -1, "gaps": 7},
    )
    specs = {name: spec_of(spec) for name, spec in dataset.element_spec.items()}
    rows = []
    for batch in dataset:
        columns = {
            name: values.to_list() if hasattr(values, "to_list") else values.numpy().tolist()
            for name, values in batch.items()
        }
        rows += [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return specs, rows, refused


def check_types(spark: "SparkSession") -> None:
    result = ef.run(read_types, workers=2, data=typed_frame(spark, ROWS), spark=spark, verbose=False)
    values = [report.value for report in result.reports]
    for specs, _, refused in values:
        assert specs == SPECS
        assert refused.startswith("Column 'holes' must have no nulls. Received: nulls at rank ")
    for report in result.reports:
        assert report.feed["datasets"]["train"]["rows"] == report.feed["rows"] == len(report.value[1])
    rows = sorted((row for _, part, _ in values for row in part), key=lambda row: row["id"])
    expected = [typed_tensors(number) for number in range(ROWS)]
    assert [row["id"] for row in rows] == list(range(ROWS))
    for name in SPECS:
        assert [row[name] for row in rows] == [row[name] for row in expected], name


def test_every_type_on_a_cluster(spark_cluster: "SparkSession") -> None:
    check_types(spark_cluster)


@pytest.mark.full
def test_every_type_on_connect(spark_connect: "SparkSession") -> None:
    check_types(spark_connect)
