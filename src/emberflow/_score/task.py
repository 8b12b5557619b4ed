"""What runs inside each Spark task: the model where the task's devices are, then the task's rows through it."""

import itertools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from emberflow._node.gpus import gpu_environment, visible_devices
from emberflow._score.child import child_scorer
from emberflow._score.scoring import ScoreSpec, local_scorer, rescored

QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "2"
}  # else TensorFlow opens each executor's log with a page about CPU features

# The GPUs that TensorFlow sees in this process, from its first use on and for ever; None before that.
_bound: tuple[str, ...] | None = None


def score_task(spec: ScoreSpec, batches: Iterator[Any]) -> Iterator[Any]:
    """Score the rows of one task; a task without rows does not even load the model."""
    filled = (_numbered(batch) for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return
    with ExitStack() as held:
        score = _scorer(spec, held)
        yield from rescored(spec, itertools.chain([first], filled), score)


def _numbered(batch: Any) -> Any:
    """Name the columns by number, as the plan does: Spark's optimizer drops aliases that only rename."""
    return batch.rename_columns([f"c{at}" for at in range(batch.num_columns)])


def _scorer(spec: ScoreSpec, held: ExitStack) -> Callable[[Any], Any]:
    """Return what scores a batch: this process, or one of its own where this one sees other GPUs.

    Spark uses its Python processes again for later tasks, which may hold other GPUs; TensorFlow cannot change its
    mind about those it sees.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    devices = _devices(context, spec.gpus)
    threads = 0 if devices or context is None else context.cpus()
    quiet = {name: value for name, value in QUIET.items() if name not in os.environ}
    held.enter_context(_environment(quiet | gpu_environment(devices)))
    return local_scorer(spec, threads) if _bind(devices) else held.enter_context(child_scorer(spec, threads))


def _devices(context: Any, gpus: int) -> tuple[str, ...]:
    if not gpus:
        return ()
    addresses = context.resources()["gpu"].addresses
    return visible_devices(addresses[:gpus], os.environ.get("CUDA_VISIBLE_DEVICES"))


def _bind(devices: tuple[str, ...]) -> bool:
    """Say whether this process sees just these GPUs; the first task decides which ones it sees."""
    global _bound  # noqa: PLW0603 - it is a fact about the process
    if _bound is None:
        if "tensorflow" in sys.modules and (devices or _sees_gpus()):
            return False  # somebody else's function brought it in, and we do not know with which GPUs
        _bound = devices
    return devices == _bound


def _sees_gpus() -> bool:
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


@contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """Have these variables for the length of the block: other functions use this process after us."""
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
