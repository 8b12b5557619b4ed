"""Rows in, the same rows with the model's results out: Spark's batches are cut for the model, and back."""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from emberflow._score.call_rows import rows_of_a_call
from emberflow._score.input_plan import InputPlan
from emberflow._score.input_rows import RowGroup, row_groups
from emberflow._score.model_facts import Tensor
from emberflow._score.model_source import ModelSource
from emberflow._score.output_plan import OutputPlan, arrow_of
from emberflow._score.predictor import Predict, call_model, predictor_of
from emberflow.errors import DataError
from emberflow.storage import StorageSettings


@dataclass(frozen=True, kw_only=True)
class ScoreSpec:
    """Everything that a task needs.

    Attributes:
        source: The model.
        tensors: The model's inputs as it describes them.
        inputs: How they come from columns.
        outputs: The columns of the results.
        keep: The columns that stay, in order, and their names in the task's batches.
        batch_size: Rows in one call of the model; None for as many as their size suggests.
        errors: What to do with rows that do not fit: "raise", "null" or "keep".
        error_column: The name of the column of reasons, for "keep".
        rows: The number of rows that a call of the model must have, if any.
        gpus: GPUs of this task.
        gpu_resource: Spark's name for them.
        storage: Hadoop's settings, with which the model is read; they may hold secrets.
    """

    source: ModelSource
    tensors: tuple[Tensor, ...]
    inputs: tuple[InputPlan, ...]
    outputs: tuple[OutputPlan, ...]
    keep: Mapping[str, str]
    batch_size: int | None
    errors: str
    error_column: str = ""
    rows: int | None = None
    gpus: int = 0
    gpu_resource: str = "gpu"
    storage: StorageSettings = field(default_factory=StorageSettings)


def scored_batches(spec: ScoreSpec, batches: Iterator[Any], score: Callable[[Any], Any]) -> Iterator[Any]:
    """Yield each batch with its results beside the kept columns, which are unchanged.

    The model sees calls of one number of rows, independent of Spark's batches; its results are cut back to those.
    """
    wanted = sorted({column.leaf.path[0] for plan in spec.inputs for column in plan.columns})
    waiting: deque[Any] = deque()
    queue: deque[Any] = deque()
    queued, done, rows = 0, None, spec.batch_size
    for batch in batches:
        waiting.append(batch)
        queue.append(batch.select(wanted))
        queued += batch.num_rows
        rows = rows or rows_of_a_call(spec.inputs, queue[0])
        while queued >= rows:
            done = _joined(done, score(_cut(queue, rows)))
            queued -= rows
        done = yield from _ready(spec, waiting, done)
    if queued:
        done = _joined(done, score(_cut(queue, queued)))
    yield from _ready(spec, waiting, done)


def _ready(spec: ScoreSpec, waiting: "deque[Any]", done: Any) -> Generator[Any, None, Any]:
    """Yield the batches whose rows all have results; return the results that are left."""
    while waiting and done is not None and done.num_rows >= waiting[0].num_rows:
        batch = waiting.popleft()
        yield _out(spec, batch, done.slice(0, batch.num_rows))
        done = done.slice(batch.num_rows)
    return done


def _cut(queue: "deque[Any]", rows: int) -> Any:
    """Take this many rows off the queue; they are copied only where they come from two batches."""
    parts = []
    while rows:
        head = queue.popleft()
        if head.num_rows > rows:
            queue.appendleft(head.slice(rows))
            head = head.slice(0, rows)
        parts.append(head)
        rows -= head.num_rows
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


def _joined(done: Any, more: Any) -> Any:
    table = pa.Table.from_batches([more])
    return table if done is None or not done.num_rows else pa.concat_tables([done, table])


def _out(spec: ScoreSpec, batch: Any, answers: Any) -> Any:
    new = (
        column.chunk(0) if column.num_chunks == 1 else column.combine_chunks() for column in answers.columns
    )
    columns = [*(batch.column(name) for name in spec.keep.values()), *new]
    return pa.RecordBatch.from_arrays(columns, names=[*spec.keep, *answers.column_names])


def score_batch(spec: ScoreSpec, predict: Predict, batch: Any) -> Any:
    """Return the results for a batch of input columns as a batch of output columns."""
    groups, bad = row_groups(spec.inputs, batch)
    if bad and spec.errors == "raise":
        row, reason = min(bad.items())
        raise DataError(
            f"{reason} It is row {row} of a batch of {batch.num_rows}, in which {len(bad)} rows do not fit.",
            fix='Fix or filter these rows in Spark, or pass errors="null" or errors="keep".',
        )
    answers = [call_model(predict, group, spec.rows) for group in groups]
    columns = [_answers(plan, groups, answers, batch.num_rows) for plan in spec.outputs]
    names = [plan.column for plan in spec.outputs]
    if spec.errors == "keep":
        reasons = np.full(batch.num_rows, None, object)
        for row, reason in bad.items():
            reasons[row] = reason
        columns.append(pa.array(reasons, pa.string()))
        names.append(spec.error_column)
    return pa.RecordBatch.from_arrays(columns, names=names)


def _answers(plan: OutputPlan, groups: list[RowGroup], answers: list[dict[str, Any]], rows: int) -> Any:
    """Return one output for all rows of a batch, null where a row did not go through the model."""
    if not answers:
        return pa.nulls(rows, plan.type)
    parts = [
        arrow_of(plan, answer[plan.name], group.count) for group, answer in zip(groups, answers, strict=True)
    ]
    if len(groups) == 1 and groups[0].rows is None:
        return parts[0]
    places = np.full(rows, -1, np.int64)
    start = 0
    for group in groups:
        places[group.rows] = np.arange(start, start + group.count)
        start += group.count
    return pa.concat_arrays(parts).take(pa.array(places, mask=places < 0))


def local_scorer(spec: ScoreSpec, threads: int) -> Callable[[Any], Any]:
    """Return a function that scores batches in this process with a model that is loaded once."""
    predict = predictor_of(spec.source, spec.tensors, threads)
    return lambda batch: score_batch(spec, predict, batch)
