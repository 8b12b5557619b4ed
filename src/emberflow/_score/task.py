"""What runs inside each Spark task: the model where the task's devices are, then the task's rows through it."""

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from emberflow._score.scoring import ScoreSpec, local_scorer, rescored


def score_task(spec: ScoreSpec, batches: Iterator[Any]) -> Iterator[Any]:
    """Score the rows of one task; a task without rows does not even load the model."""
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return
    with scorer_for(spec) as score:
        yield from rescored(spec, itertools.chain([first], filled), score)


@contextmanager
def scorer_for(spec: ScoreSpec) -> Iterator[Any]:
    """Give the function that scores a batch, for the length of a task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    threads = context.cpus() if context is not None else 0
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    yield local_scorer(spec, threads)
