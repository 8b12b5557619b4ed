"""Synchronous data parallel training of a Keras model: plain `fit` on each rank, and hooks on the instances.

No strategy scope, no subclass, no patched module: only methods of this one model, its optimizers and its
synchronized layers are wrapped, so that files it saves and clones of it are plain Keras. `optimizer.apply` sums
gradients over ranks, `train_step` and `test_step` know the rows of the step, `get_metrics_result` sums the metrics'
state, `make_train_function` judges the first batch, `compute_loss` weighs what is no mean over rows, `compile` sets
the hooks again, `fit` and `evaluate` see to callbacks and errors.
"""

import contextlib
from typing import Any

import keras

import tensorflow as tf
from emberflow._choices import WireDtype, check_choice
from emberflow.errors import ModelError
from emberflow.strategies.data_parallel.batch_rows import spec_of_leaf
from emberflow.strategies.data_parallel.broadcast import broadcast_model
from emberflow.strategies.data_parallel.first_batch import hook_functions
from emberflow.strategies.data_parallel.fitting import hook_fit
from emberflow.strategies.data_parallel.gradients import hook_optimizer
from emberflow.strategies.data_parallel.loss_weighting import hook_loss
from emberflow.strategies.data_parallel.metric_state import hook_metrics, reduce_logs
from emberflow.strategies.data_parallel.model_checks import check_compiled, check_layers, optimizers_of
from emberflow.strategies.data_parallel.replica import Replica, Step
from emberflow.strategies.data_parallel.shared_statistics import hook_statistics
from emberflow.strategies.transport.interface import Transport


def distribute(
    model: Any,
    transport: Transport,
    *,
    seed: int | None = None,
    exact: bool = True,
    wire_dtype: WireDtype = "float32",
) -> Any:
    """Train this model on all ranks at once: `fit` then has the result of one process over all rows.

    Call it on all ranks, with the same model, compiled or not. Batches are per rank and may be uneven or
    empty; gradients, losses and metrics are those of all ranks' rows together. `predict` stays local.

    Args:
        model: A Keras model. It is changed in place.
        transport: The connection to the other ranks.
        seed: Seeds Dropout and the like, differently on each rank. Defaults to the chief's own seeds.
        exact: Refuse losses, metrics and layers whose results differ from those of one process. False warns of
            losses and metrics, and takes unclear losses for means and unclear metrics for sums.
        wire_dtype: As what gradients travel between hosts. "bfloat16" takes half of the bytes, and is not exact.

    Returns:
        The same model.

    Raises:
        ConfigError: The transport has no such `wire_dtype`.
        ModelError: The model cannot be trained exactly on many ranks; the message says what to change.
    """
    if _is_distributed(model, transport):
        return model
    if wire_dtype != "float32":
        check_choice(
            "wire_dtype", wire_dtype, transport.wire_dtypes, 'Leave it out, or pass transport="ring".'
        )
    replica = Replica(model, transport, seed=seed, exact=exact, wire_dtype=wire_dtype)
    if model.built and model.variables:
        broadcast_model(replica)
    if transport.ranks == 1:  # plain Keras, at its full speed
        return model
    _hook_steps(replica)
    hook_loss(replica)
    hook_metrics(replica)
    hook_functions(replica, _prepare)
    hook_fit(replica)
    _hook_compile(replica)
    if model.compiled:
        _follow_compile(replica)
    return model


def _is_distributed(model: Any, transport: Transport) -> bool:
    known = getattr(vars(model).get("fit"), "transport", None)
    if known not in (None, transport):
        raise ModelError(
            f"A model can be distributed once. Received: model={model.name!r}, distributed before",
            "Build a new model in each run; copy weights with new.set_weights(old.get_weights()).",
        )
    return known is not None


def _hook_compile(replica: Replica) -> None:
    inner = replica.model.compile

    def compile_(*args: Any, **kwargs: Any) -> None:
        inner(*args, **kwargs)
        _follow_compile(replica)

    replica.model.compile = compile_


def _follow_compile(replica: Replica) -> None:
    model = replica.model
    check_compiled(model, exact=replica.exact)
    check_layers(model, exact=replica.exact)
    hook_statistics(replica)
    replica.is_prepared = False
    replica.kinds, replica.is_judged = None, False
    model.train_function = None  # what was traced before has no hooks
    model.test_function = None
    for optimizer in optimizers_of(model):
        hook_optimizer(replica, optimizer)


def _hook_steps(replica: Replica) -> None:
    model = replica.model
    inner_train, inner_test = model.train_step, model.test_step

    def train_step(data: Any) -> Any:
        _prepare(replica, data)
        with replica.stepping(data, is_training=True) as step:
            logs = inner_train(data)
            _check_reduced(replica, step)
            step.settle()
            replica.rows_seen.assign_add(step.rows)
            return reduce_logs(replica, step, logs)

    def test_step(data: Any) -> Any:
        _prepare(replica, data)
        with replica.stepping(data, is_training=False) as step:
            logs = inner_test(data)
            step.settle()
            return logs

    model.train_step = train_step
    model.test_step = test_step


def _check_reduced(replica: Replica, step: Step) -> None:
    """Refuse a step without a Keras optimizer: it would silently train each rank on its own."""
    if replica.model.trainable_weights and not step.is_reduced:
        raise ModelError(
            "A training step must apply its gradients by a Keras optimizer that is an attribute of the model. "
            f"Received: train_step of {type(replica.model).__name__}, which applied none",
            "Call self.optimizer.apply_gradients(...) in train_step.",
        )


def _prepare(replica: Replica, data: Any) -> None:
    """Build what the first batch would build, and start from the chief's weights.

    A traced step needs the values of all variables before it runs, including those that its first run would
    create: metrics, the trackers of single outputs' losses, and all weights of a model without input shape.
    """
    if replica.is_prepared:
        return
    model = replica.model
    with tf.init_scope():  # outside of the graph that is being traced
        if not model.built or model.loss is not None:
            specs = tf.nest.map_structure(spec_of_leaf, data)
            with contextlib.suppress(Exception) if replica.has_own_step else contextlib.nullcontext():
                tf.function(lambda batch: _build(replica, batch)).get_concrete_function(specs)
        if not replica.is_broadcast:
            check_layers(model, exact=replica.exact)
            hook_statistics(replica)
            broadcast_model(replica)
    replica.is_prepared = True


def _build(replica: Replica, batch: Any) -> None:
    """Compute loss and metrics once in a graph that is never run."""
    model = replica.model
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
    prediction = model(x)
    if model.loss is not None:
        with replica.probing():
            model.compute_loss(x=x, y=y, y_pred=prediction, sample_weight=sample_weight)
            model.compute_metrics(x, y, prediction, sample_weight)
