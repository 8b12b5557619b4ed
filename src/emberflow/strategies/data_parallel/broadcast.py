"""The chief's weights and seeds to all ranks; moving statistics averaged over them."""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

import tensorflow as tf
from emberflow.errors import ModelError
from emberflow.strategies.data_parallel.replica import Replica, Variable
from emberflow.strategies.transport.interface import Transport

_SEED_STEP = 0x9E3779B1  # a large odd number: neighbouring ranks get seeds that are far apart


def spread_model(replica: Replica) -> None:
    """Give all ranks the chief's weights, and seeds that differ from rank to rank. Not inside a graph."""
    model = replica.model
    weights = {id(variable) for variable in model.weights}
    seeds = [variable for variable in model.variables if id(variable) not in weights]
    _check_same(replica.transport, model.variables)
    if replica.seed is not None and not replica.is_spread:
        for place, state in enumerate(seeds):
            state.assign(np.array([replica.seed + place * 7919, 0]))
    spread(replica.transport, model.variables)
    for state in seeds:
        state.assign(
            tf.convert_to_tensor(state) + tf.constant([replica.transport.rank * _SEED_STEP, 0], state.dtype)
        )
    replica.is_spread = True


def spread_optimizer(replica: Replica) -> None:
    """Give all ranks the chief's optimizer state, if it has one."""
    optimizer = replica.model.optimizer
    if optimizer is None:
        return
    (is_built,) = replica.transport.sum([tf.constant(int(replica.is_chief and optimizer.built))])
    if int(is_built):
        if not optimizer.built:
            optimizer.build(replica.model.trainable_variables)
        spread(replica.transport, optimizer.variables)


def spread(transport: Transport, variables: Sequence[Variable]) -> None:
    """Assign the chief's values on all ranks."""
    values = [tf.convert_to_tensor(variable) for variable in variables]
    mine = values if transport.rank == 0 else [tf.zeros_like(value) for value in values]
    for variable, value in zip(variables, transport.sum(mine), strict=True):
        variable.assign(value)


def average_statistics(replica: Replica) -> None:
    """Average what the ranks' own batches moved (BatchNorm's statistics), weighted by rows.

    Only what differs is touched: the mean of equal numbers need not be that number.
    """
    if not replica.has_trained:
        return
    replica.has_trained = False
    variables = differing(replica)
    if not variables:
        return
    rows = tf.maximum(replica.rows_seen, 1e-6)
    weighed = [_as_float(variable) * rows for variable in variables]
    total, *sums = replica.transport.sum([rows, *weighed])
    for variable, value in zip(variables, sums, strict=True):
        variable.assign(tf.cast(value / total, variable.dtype))
    replica.rows_seen.assign(0.0)


def differing(replica: Replica) -> list[Variable]:
    """Return the variables without gradients that are not the same on all ranks; a question to all of them."""
    candidates = list(replica.model.non_trainable_weights)
    if not candidates:
        return []
    sums = [zlib.crc32(np.ascontiguousarray(variable.numpy()).tobytes()) for variable in candidates]
    table = np.asarray(replica.transport.gather(tf.constant([sums], tf.int64)))
    return [variable for variable, column in zip(candidates, table.T, strict=True) if len(set(column)) > 1]


def _as_float(variable: Variable) -> Any:
    return tf.cast(tf.convert_to_tensor(variable), tf.float32)


def _check_same(transport: Transport, variables: Sequence[Variable]) -> None:
    """Compare what the ranks built before the first tensor of another shape hangs or spoils a sum."""
    built = repr([(tuple(variable.shape), variable.dtype) for variable in variables])
    prints = np.asarray(transport.gather(tf.constant([zlib.crc32(built.encode())], tf.int64)))
    others = [rank for rank, each in enumerate(prints) if each != prints[0]]
    if others:
        raise ModelError(
            f"All ranks must build the same model as rank 0. Received: another model on ranks={others}",
            "Let your function build the model from its arguments only, not from the rank or the rows.",
        )
