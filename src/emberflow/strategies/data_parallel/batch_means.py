"""Which `Mean` metrics count a batch once: those that are updated with one number and no weight.

Keras updates the losses of single outputs so, and so do most custom steps. One process would have counted one batch
of all ranks' rows once, so each rank counts by its share of the rows.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras

import tensorflow as tf


def is_plain_mean(metric: Any) -> bool:
    """Whether a metric is updated as `keras.metrics.Mean` is."""
    return bool(type(metric).update_state is keras.metrics.Mean.update_state)


@contextlib.contextmanager
def noting_batch_means(model: Any) -> Iterator[set[int]]:
    """Yield the ids of the metrics' variables that count batches, complete when the step has been traced."""
    noted: set[int] = set()
    watched = [metric for metric in model.metrics if is_plain_mean(metric)]
    outer = [vars(metric).get("update_state") for metric in watched]  # of the step around this one
    for metric in watched:
        _watch(metric, noted)
    try:
        yield noted
    finally:
        for metric, before in zip(watched, outer, strict=True):
            del metric.update_state
            if before is not None:
                metric.update_state = before


def _watch(metric: Any, noted: set[int]) -> None:
    inner = metric.update_state

    def update_state(values: Any, sample_weight: Any = None) -> Any:
        if sample_weight is None and tf.convert_to_tensor(values).shape.rank == 0:
            noted.update(id(variable) for variable in metric.variables)
        return inner(values, sample_weight=sample_weight)

    metric.update_state = update_state
