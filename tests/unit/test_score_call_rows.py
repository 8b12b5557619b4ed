"""How many rows go through the model in one call, where the user has not said it."""

import pyarrow as pa
import pytest

from emberflow._score.call_rows import rows_of_a_call
from emberflow._score.input_plan import InputOptions, plan_inputs
from emberflow._score.model_facts import ModelFacts, Tensor


@pytest.mark.parametrize(
    ("shape", "dtype", "rows"),
    [
        ((784,), "float32", 1337),  # 4 MB
        ((28, 28), "uint8", 4096),  # 3 MB: no more rows than this
        ((), "float64", 4096),
        ((224, 224, 3), "float32", 32),  # 19 MB: no fewer rows than this
        ((1024, 1024, 3), "float32", 5),  # but no more than 64 MB
        ((8192, 8192), "float32", 1),
        ((784,), "bfloat16", 2674),
    ],
)
def test_rows_follow_from_the_size_of_the_models_inputs(
    shape: tuple[int, ...], dtype: str, rows: int
) -> None:
    # What is stored does not matter: bytes become the input's own type before the call.
    schema = pa.schema({"x": pa.binary() if shape else pa.float64()})
    tensor = Tensor(name="x", dtype=dtype, shape=shape)
    facts = ModelFacts(kind="keras", inputs=(tensor,), outputs=())
    options = InputOptions(shapes={}, dtypes={"x": "uint8"} if shape else {})
    plans = plan_inputs(schema, facts, "x", options)
    batch = pa.RecordBatch.from_arrays([pa.array([b"1" if shape else 1.0])], schema=schema)
    assert rows_of_a_call(plans, batch) == rows


def test_rows_of_unknown_size_are_weighed() -> None:
    schema = pa.schema({"x": pa.binary()})
    facts = ModelFacts(kind="keras", inputs=(Tensor(name="x", dtype="bytes", shape=()),), outputs=())
    plans = plan_inputs(schema, facts, "x", InputOptions(shapes={}, dtypes={}))
    images = pa.RecordBatch.from_arrays([pa.array([bytes(30_000), bytes(70_000)])], schema=schema)
    assert rows_of_a_call(plans, images) == (4 << 20) // 50_004  # with four bytes of an offset each
    sliced = pa.RecordBatch.from_arrays([pa.array([b"", bytes(1 << 20)])], schema=schema).slice(0, 1)
    assert rows_of_a_call(plans, sliced) == 4096
