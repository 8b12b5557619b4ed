"""One step of a Keras model on a worker, with its variables on parameter servers.

Keras adds to a variable by reading, adding and writing back; if two workers do so at once, one update is lost. So
what a step adds to metrics and counters is collected first, and then added by TensorFlow on the server, atomically.
"""

from collections.abc import Callable
from typing import Any

import keras

import tensorflow as tf
from emberflow.errors import ModelError
from emberflow.strategies.parameter_server.row_sources import next_batch


def train_step_of(model: Any, strategy: Any, name: str, spec: Any) -> Callable[..., Any]:
    """Return a function of the epoch that trains on the next batch of the node that runs it.

    It returns the owner's rank, the number of rows, whether no node has any left, and the metrics so far.
    """

    def train(batch: Any) -> None:
        metrics = _metric_variables(model)
        fresh = [(variable, tf.zeros(variable.shape, variable.dtype)) for variable in metrics]
        with keras.StatelessScope(state_mapping=fresh) as scope:
            model.train_step(batch)
        optimized = [variable for optimizer in _optimizers(model) for variable in optimizer.variables]
        counters = [variable for variable in optimized if variable.name == "iteration"]
        for variable in metrics:
            _server_value(variable).assign_add(scope.get_current_value(variable))
        for variable in counters:
            if scope.get_current_value(variable) is not None:
                _server_value(variable).assign_add(1)
        added = {id(variable) for variable in [*metrics, *counters]}
        # Moving statistics, seeds, what a constraint has changed.
        for variable in [*model.variables, *optimized]:
            value = scope.get_current_value(variable)
            if value is not None and id(variable) not in added:
                _server_value(variable).assign(value)

    return _step(model, strategy, name, spec, train)


def test_step_of(model: Any, strategy: Any, name: str, spec: Any) -> Callable[..., Any]:
    """Return a function of the epoch that evaluates the next batch of the node that runs it."""

    def test(batch: Any) -> None:
        metrics = _metric_variables(model)
        fresh = [(variable, tf.zeros(variable.shape, variable.dtype)) for variable in metrics]
        with keras.StatelessScope(state_mapping=fresh) as scope:
            model.test_step(batch)
        for variable in metrics:
            _server_value(variable).assign_add(scope.get_current_value(variable))

    return _step(model, strategy, name, spec, test)


def _step(model: Any, strategy: Any, name: str, spec: Any, work: Callable[[Any], None]) -> Callable[..., Any]:
    def step(epoch: Any) -> Any:
        owner, rows, is_over, batch = next_batch(name, spec, epoch)

        def done() -> Any:
            strategy.run(work, args=(batch,))
            return tf.constant(0)

        worked = tf.cond(rows > 0, done, lambda: tf.constant(0))
        with tf.control_dependencies([worked]):
            logs = {key: tf.convert_to_tensor(value) for key, value in model.get_metrics_result().items()}
            return owner, rows, is_over, logs

    return tf.function(step, input_signature=[tf.TensorSpec([], tf.int64)])  # type: ignore[no-any-return]


def prepare(model: Any, spec: Any) -> None:
    """Create all variables before the first step, which would create those of metrics and optimizer too late."""

    def call(batch: Any) -> None:
        x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)
        predicted = model(x, training=False)
        if model.loss is not None:
            model.compute_loss(x=x, y=y, y_pred=predicted, sample_weight=weight, training=False)
        if y is not None:
            model.compute_metrics(x, y, predicted, sample_weight=weight)

    tf.function(call).get_concrete_function(spec)  # traced, never run
    for optimizer in _optimizers(model):
        if optimizer.gradient_accumulation_steps:
            raise ModelError(
                "Asynchronous workers cannot accumulate gradients together. Received: "
                f"gradient_accumulation_steps={optimizer.gradient_accumulation_steps}.",
                "Leave gradient_accumulation_steps out, and use larger batches.",
            )
        if not optimizer.built:
            optimizer.build(model.trainable_variables)


def _optimizers(model: Any) -> list[Any]:
    return [model.optimizer] if model.optimizer is not None else []


def _metric_variables(model: Any) -> list[Any]:
    return [variable for metric in model.metrics for variable in metric.variables]


def _server_value(variable: Any) -> Any:
    return variable.value
