"""One average of all gradients, weighted by rows, before anything is clipped or accumulated.

Keras gives each rank the mean over its own rows, so the gradient of one process over all rows is the sum of
`rows * gradient` over ranks, divided by the sum of `rows`: an average with `rows` as weights. The request to stop
goes with the rows.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from emberflow.strategies.data_parallel.replica import Replica
from emberflow.strategies.transport.interface import Tensor
from emberflow.strategies.transport.rounded_sum import Residuals


def hook_optimizer(replica: Replica, optimizer: Any) -> None:
    """Let this optimizer apply the gradients of all ranks."""
    if "apply" in vars(optimizer):  # compiled again with the same optimizer
        return
    inner = optimizer.apply
    residuals = Residuals() if replica.wire_dtype == "bfloat16" else None

    def apply(grads: Sequence[Any], trainable_variables: Any = None) -> Any:
        return inner(reduce_gradients(replica, list(grads), residuals), trainable_variables)

    optimizer.apply = apply


def reduce_gradients(replica: Replica, grads: list[Any], residuals: Residuals | None = None) -> list[Any]:
    """Return the gradients of all ranks' rows; None stays None, slices stay slices."""
    step = replica.step
    # Outside of a step (in the user's own loop) the rows are unknown: all ranks have the same weight.
    rows = tf.constant(1.0) if step is None else step.rows
    head = tf.stack([rows, replica.stop_requested])
    dense = {place: grad for place, grad in enumerate(grads) if tf.is_tensor(grad) and not _is_sparse(grad)}
    rounded = {} if residuals is None else {"residuals": residuals}
    totals, averages = replica.transport.average(head, list(dense.values()), **rounded)
    total, stop = totals[0], totals[1]
    replica.stop_agreed.assign(tf.maximum(replica.stop_agreed, stop))
    if step is not None:
        step.note_total(total)
    reduced = list(grads)
    for place, average in zip(dense, averages, strict=True):
        reduced[place] = average
    for place, grad in enumerate(grads):
        if _is_sparse(grad):
            reduced[place] = _gather_slices(replica, grad, rows, total)
    return reduced


def _gather_slices(replica: Replica, grad: Any, rows: Tensor, total: Tensor) -> Any:
    """Return all ranks' slices one after the other; as a dense gradient they would change rows that Adam skips."""
    weighted = tf.math.multiply_no_nan(_wide(grad.values), tf.cast(rows, _wide_type(grad)))
    values = replica.transport.gather(weighted)
    indices = replica.transport.gather(grad.indices)
    return tf.IndexedSlices(_divided(values, total, grad.dtype), indices, grad.dense_shape)


def _divided(value: Tensor, total: Tensor, dtype: Any) -> Tensor:
    return tf.cast(tf.math.divide_no_nan(value, tf.cast(total, value.dtype)), dtype)


def _is_sparse(grad: Any) -> bool:
    return isinstance(grad, tf.IndexedSlices)


def _wide_type(grad: Any) -> Any:
    """Half floats times rows would overflow."""
    return tf.float32 if grad.dtype in (tf.float16, tf.bfloat16) else grad.dtype


def _wide(grad: Tensor) -> Tensor:
    return tf.cast(grad, _wide_type(grad))
