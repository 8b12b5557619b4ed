"""The scoring task: loads the model on the task's devices, then scores the task's rows."""

import dataclasses
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from emberflow import storage
from emberflow._environment import variables_set
from emberflow._score.child_predictor import child_scorer
from emberflow._score.gpu_scorer import gpu_scorer
from emberflow._score.model_versions import newest_source
from emberflow._score.scoring import ScoreSpec, local_scorer, scored_batches
from emberflow._task.gpus import gpu_environment, visible_devices
from emberflow.errors import EmberflowError

TRIES = 3  # a version may be removed while it is loaded; a newer one is there then
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}  # otherwise TensorFlow fills each executor's log with CPU features


def score_task(spec: ScoreSpec, batches: Iterator[Any]) -> Iterator[Any]:
    """Score the rows of one task; a task without rows does not load the model."""
    filled = (_numbered(batch) for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return
    storage.apply_settings(spec.storage)
    with ExitStack() as held:
        score = _newest_scorer(spec, held)
        yield from scored_batches(spec, itertools.chain([first], filled), score)


def _numbered(batch: Any) -> Any:
    """Name the columns by number, as the plan does: Spark's optimizer drops aliases that only rename."""
    return batch.rename_columns([f"c{at}" for at in range(batch.num_columns)])


def _newest_scorer(spec: ScoreSpec, held: ExitStack) -> Callable[[Any], Any]:
    """Return a function that scores a batch, with the newest version of a model that has versions."""
    tries_left = TRIES
    while True:
        tries_left -= 1
        source = newest_source(spec.source)
        try:
            return _scorer(dataclasses.replace(spec, source=source), held)
        except (EmberflowError, OSError):
            if not source.versions or not tries_left or storage.exists(source.path):
                raise


def _scorer(spec: ScoreSpec, held: ExitStack) -> Callable[[Any], Any]:
    """Return a function that scores a batch: in the process that holds the task's GPUs, or without GPUs in this one.

    Spark reuses its Python processes, also for other functions, and TensorFlow cannot release GPUs that it has seen.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    devices = _devices(context, spec)
    if devices:
        return held.enter_context(gpu_scorer(spec, devices))
    threads = 0 if context is None else context.cpus()
    quiet = {name: value for name, value in QUIET.items() if name not in os.environ}
    held.enter_context(variables_set(quiet | gpu_environment(())))
    if "tensorflow" in sys.modules and _sees_gpus():
        return held.enter_context(child_scorer(spec, threads))
    return local_scorer(spec, threads)


def _devices(context: Any, spec: ScoreSpec) -> tuple[str, ...]:
    if not spec.gpus:
        return ()
    addresses = context.resources()[spec.gpu_resource].addresses
    return visible_devices(addresses[: spec.gpus], os.environ.get("CUDA_VISIBLE_DEVICES"))


def _sees_gpus() -> bool:
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))
