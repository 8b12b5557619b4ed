"""The state of the metrics, summed over ranks.

Nearly all metrics keep sums and counts, so that the sum of the ranks' states is the state of one process.
"""

from typing import Any

import keras

import tensorflow as tf
from emberflow.strategies.data_parallel.broadcast import average_statistics
from emberflow.strategies.data_parallel.replica import Replica, Step


def hook_metrics(replica: Replica) -> None:
    """Let the model's results be those of all ranks: in each training step, and at the end of an evaluation.

    Ranks may evaluate different numbers of batches, so there only the end is common to all.
    """
    model = replica.model
    inner = model.get_metrics_result

    def get_metrics_result() -> Any:
        step = replica.step
        if replica.is_probing:
            return inner()
        if step is None:
            average_statistics(replica)
            replica.results = _result_of_all(replica, inner)
            return dict(replica.results)
        step.settle()
        if not step.is_training:
            return inner()
        step.logs_are_reduced = True
        return _result_of_all(replica, inner)

    model.get_metrics_result = get_metrics_result


def reduce_logs(replica: Replica, step: Step, logs: Any) -> Any:
    """Return what a custom training step returned as of all ranks.

    Results of metrics come from their summed state, all else is a mean over ranks, weighted by rows.
    """
    if step.logs_are_reduced or not isinstance(logs, dict) or not logs:
        return logs
    results = replica.model.get_metrics_result()
    bare = {name: tf.cast(value, tf.float32) for name, value in logs.items() if name not in results}
    if bare:
        weighted = [tf.math.multiply_no_nan(value, step.rows) for value in bare.values()]
        total, *sums = replica.transport.sum([step.rows, *weighted])
        bare = {name: tf.math.divide_no_nan(each, total) for name, each in zip(bare, sums, strict=True)}
    return {name: bare[name] if name in bare else results[name] for name in logs}


def _result_of_all(replica: Replica, inner: Any) -> Any:
    variables = [variable for metric in replica.model.metrics for variable in metric.variables]
    sums = replica.transport.sum([tf.convert_to_tensor(variable) for variable in variables])
    with keras.StatelessScope(state_mapping=list(zip(variables, sums, strict=True))):
        return inner()
