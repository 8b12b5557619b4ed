"""Batches of Spark's, cut for the model and cut back: every row once, in its place, kept columns untouched."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberflow._score.input_plan import InputOptions, plan_inputs
from emberflow._score.model_facts import ModelFacts, Tensor
from emberflow._score.model_source import ModelSource
from emberflow._score.output_plan import OutputPlan
from emberflow._score.scoring import ScoreSpec, score_batch, scored_batches
from emberflow.errors import DataError

SCHEMA = pa.schema({"id": pa.int64(), "x": pa.list_(pa.float64()), "note": pa.binary()})
TENSOR = Tensor(name="x", dtype="float64", shape=(2,))


def spec_of(batch_size: int, errors: str = "raise", tensor: Tensor = TENSOR) -> ScoreSpec:
    facts = ModelFacts(kind="keras", inputs=(tensor,), outputs=())
    return ScoreSpec(
        source=ModelSource(kind="function", key="k"),
        tensors=(tensor,),
        inputs=plan_inputs(SCHEMA, facts, "x", InputOptions(shapes={}, dtypes={})),
        outputs=(OutputPlan(name="sum", column="sum", type=pa.float64()),),
        keep={"note": "note", "id": "id"},
        batch_size=batch_size,
        errors=errors,
        error_column="why",
        rows=tensor.rows,
    )


def batches(cuts: list[int], *, bad: frozenset[int] = frozenset()) -> Iterator[Any]:
    start = 0
    for rows in cuts:
        ids = list(range(start, start + rows))
        start += rows
        xs = [None if at in bad else [float(at), 1.0] for at in ids]
        columns = [pa.array(ids), pa.array(xs, pa.list_(pa.float64())), pa.array([b"%d" % at for at in ids])]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def score(spec: ScoreSpec, given: Iterator[Any]) -> tuple[list[Any], list[int]]:
    calls: list[int] = []

    def predict(arrays: Any) -> Any:
        calls.append(len(arrays["x"]))
        return {"sum": arrays["x"].sum(axis=1)}

    done = list(scored_batches(spec, given, lambda batch: score_batch(spec, predict, batch)))
    return done, calls


@settings(deadline=None)
@given(st.lists(st.integers(1, 9), max_size=8), st.integers(1, 12))
def test_cut_at_every_place(cuts: list[int], batch_size: int) -> None:
    done, calls = score(spec_of(batch_size), batches(cuts))
    rows = sum(cuts)
    assert [batch.num_rows for batch in done] == cuts
    assert calls == [batch_size] * (rows // batch_size) + [rows % batch_size] * bool(rows % batch_size)
    table = [row for batch in done for row in batch.to_pylist()]
    assert table == [{"note": b"%d" % at, "id": at, "sum": at + 1.0} for at in range(rows)]


@settings(deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.sets(st.integers(0, 20)), st.integers(1, 7))
def test_bad_rows_keep_their_place_and_say_why(cuts: list[int], bad: set[int], batch_size: int) -> None:
    done, _ = score(spec_of(batch_size, "keep"), batches(cuts, bad=frozenset(bad)))
    for row in (row for batch in done for row in batch.to_pylist()):
        is_bad = row["id"] in bad
        assert row["sum"] == (None if is_bad else row["id"] + 1.0)
        assert (row["why"] or "").startswith("Column 'x' must hold float64 of shape (2,)." if is_bad else "")


def test_null_has_no_column_of_reasons() -> None:
    done, _ = score(spec_of(4, "null"), batches([3], bad=frozenset({1})))
    assert done[0].schema.names == ["note", "id", "sum"]
    assert done[0].column("sum").to_pylist() == [1.0, None, 3.0]


def test_a_batch_without_a_good_row_never_meets_the_model() -> None:
    done, calls = score(spec_of(2, "null"), batches([2], bad=frozenset({0, 1})))
    assert calls == []
    assert done[0].column("sum").to_pylist() == [None, None]


def test_raise_names_column_shape_and_what_came() -> None:
    with pytest.raises(
        DataError, match=r"Column 'x' must hold float64 of shape \(2,\). Received: null."
    ) as caught:
        score(spec_of(3), batches([3], bad=frozenset({2})))
    assert 'errors="keep"' in caught.value.fix


def test_kept_columns_are_the_very_same_memory() -> None:
    given = list(batches([5, 3]))
    done, _ = score(spec_of(4), iter(given))
    for before, after in zip(given, done, strict=True):
        assert after.column("note").buffers()[2].address == before.column("note").buffers()[2].address


def test_a_model_with_a_fixed_number_of_rows_gets_just_that_many() -> None:
    tensor = Tensor(name="x", dtype="float64", shape=(2,), rows=4)
    done, calls = score(spec_of(4, "null", tensor), batches([6], bad=frozenset({1})))
    assert calls == [4, 4]
    assert done[0].column("sum").to_pylist() == [1.0, None, 3.0, 4.0, 5.0, 6.0]


def test_memory_stays_bounded() -> None:
    """A batch leaves as soon as its rows are scored: at most one call's rows wait."""
    waiting = 0
    most = 0

    def counted() -> Iterator[Any]:
        nonlocal waiting, most
        for batch in batches([3] * 50):
            waiting += batch.num_rows
            most = max(most, waiting)
            yield batch

    spec = spec_of(7)
    scorer = lambda batch: score_batch(spec, lambda arrays: {"sum": np.zeros(len(arrays["x"]))}, batch)  # noqa: E731
    for batch in scored_batches(spec, counted(), scorer):
        waiting -= batch.num_rows
    assert (waiting, most <= 7 + 3) == (0, True)
