"""Sends the chief's weights and seeds to all ranks, and averages moving statistics over them."""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

import tensorflow as tf
from emberflow.errors import ModelError
from emberflow.strategies.data_parallel.replica import Replica, Variable
from emberflow.strategies.transport.interface import Transport

_SEED_STEP = 0x9E3779B1  # a large odd number: neighbouring ranks get seeds that are far apart
_SEED_STRIDE = 7919  # a prime: the layers' seeds differ also for runs whose seeds are close to each other
LEAST_ROWS = 1e-6  # for ranks without rows, so that the sum of the weights is not 0


def broadcast_model(replica: Replica) -> None:
    """Give all ranks the chief's weights, and seeds that differ from rank to rank. Not inside a graph."""
    model = replica.model
    weights = {id(variable) for variable in model.weights}
    seeds = [variable for variable in model.variables if id(variable) not in weights]
    _check_same(replica.transport, model.variables)
    if replica.seed is not None and not replica.is_broadcast:
        for place, state in enumerate(seeds):
            state.assign(np.array([replica.seed + place * _SEED_STRIDE, 0]))
    broadcast(replica.transport, model.variables)
    for state in seeds:
        state.assign(
            tf.convert_to_tensor(state) + tf.constant([replica.transport.rank * _SEED_STEP, 0], state.dtype)
        )
    replica.is_broadcast = True


def broadcast_optimizer(replica: Replica) -> None:
    """Give all ranks the chief's optimizer state, if it has one."""
    optimizer = replica.model.optimizer
    if optimizer is None:
        return
    (is_built,) = replica.transport.sum([tf.constant(int(replica.is_chief and optimizer.built))])
    if int(is_built):
        if not optimizer.built:
            optimizer.build(replica.model.trainable_variables)
        broadcast(replica.transport, optimizer.variables)


def broadcast(transport: Transport, variables: Sequence[Variable]) -> None:
    """Assign the chief's values on all ranks."""
    values = [tf.convert_to_tensor(variable) for variable in variables]
    mine = values if transport.rank == 0 else [tf.zeros_like(value) for value in values]
    for variable, value in zip(variables, transport.sum(mine), strict=True):
        variable.assign(value)


def average_statistics(replica: Replica) -> None:
    """Average what the ranks' own batches changed (BatchNorm's statistics), weighted by rows.

    Only what differs is averaged: rounding may change the mean of equal numbers.
    """
    if not replica.has_trained:
        return
    replica.has_trained = False
    variables = differing_variables(replica)
    if not variables:
        return
    rows = tf.maximum(replica.rows_seen, LEAST_ROWS)
    weighted = [_as_float(variable) * rows for variable in variables]
    total, *sums = replica.transport.sum([rows, *weighted])
    for variable, value in zip(variables, sums, strict=True):
        variable.assign(tf.cast(value / total, variable.dtype))
    replica.rows_seen.assign(0.0)


def differing_variables(replica: Replica) -> list[Variable]:
    """Return the variables without gradients that differ between ranks; all ranks must call it."""
    candidates = list(replica.model.non_trainable_weights)
    if not candidates:
        return []
    sums = [zlib.crc32(np.ascontiguousarray(variable.numpy()).tobytes()) for variable in candidates]
    table = np.asarray(replica.transport.gather(tf.constant([sums], tf.int64)))
    return [variable for variable, column in zip(candidates, table.T, strict=True) if len(set(column)) > 1]


def _as_float(variable: Variable) -> Any:
    return tf.cast(tf.convert_to_tensor(variable), tf.float32)


def _check_same(transport: Transport, variables: Sequence[Variable]) -> None:
    """Compare what the ranks built, before a tensor of another shape blocks or corrupts a sum."""
    built = repr([(tuple(variable.shape), variable.dtype) for variable in variables])
    checksums = np.asarray(transport.gather(tf.constant([zlib.crc32(built.encode())], tf.int64)))
    others = [rank for rank, each in enumerate(checksums) if each != checksums[0]]
    if others:
        raise ModelError(
            f"All ranks must build the same model as rank 0. Received: another model on ranks={others}",
            "Build the model from your function's arguments only, not from the rank or the rows.",
        )
