"""`BatchNormalization(synchronized=True)`: normalizes by the rows of all ranks, as one process would.

Each rank adds up its own values, and one exchange in the forward pass adds the ranks' sums. The gradient of that sum
is a sum again: what the other ranks made of this rank's values comes back by one exchange in the backward pass. All
ranks exchange in program order, so a layer's sums go before the gradients.
"""

from typing import Any

import keras

import tensorflow as tf
from emberflow.strategies.data_parallel.model_checks import layers_of
from emberflow.strategies.data_parallel.replica import Replica
from emberflow.strategies.transport.interface import Tensor

HOOKED = "_moments"  # private in Keras: mean and variance of one training batch
_WIDE = tf.float64  # a variance is the small difference of large sums


def hook_statistics(replica: Replica) -> None:
    """Let the model's synchronized layers share their statistics in each training step."""
    for layer in layers_of(replica.model):
        if isinstance(layer, keras.layers.BatchNormalization) and layer.synchronized:
            _hook_layer(replica, layer)


def _hook_layer(replica: Replica, layer: Any) -> None:
    inner = getattr(layer, HOOKED)
    known = getattr(inner, "replicas", ())  # of other models that have this layer too
    if replica in known:
        return

    def moments(inputs: Tensor, mask: Tensor | None = None) -> Any:
        step = replica.step
        is_other_models = step is None and known
        # Ranks may evaluate different numbers of batches: there nothing is exchanged.
        is_local = replica.is_probing or (step is not None and not step.is_training)
        if is_other_models or is_local:
            return inner(inputs, mask)
        return _shared_moments(replica, layer, inputs, mask)

    moments.replicas = (*known, replica)  # type: ignore[attr-defined]
    setattr(layer, HOOKED, moments)
    replica.shared_layers.append(layer)


def _shared_moments(
    replica: Replica, layer: Any, inputs: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return mean and variance of all ranks' values: what Keras computes of all of them in one batch."""
    total, squares, count = _summed(replica, _local_sums(layer, inputs, mask))
    divisor = count if mask is None else count + keras.backend.epsilon()  # as Keras does
    mean = tf.math.divide_no_nan(total, divisor)
    distances = squares - 2 * mean * total + count * mean**2
    variance = tf.maximum(tf.math.divide_no_nan(distances, divisor), 0)
    if mask is None:  # a step in which no rank has rows changes nothing
        mean = tf.where(count > 0, mean, tf.cast(layer.moving_mean, _WIDE))
        variance = tf.where(count > 0, variance, tf.cast(layer.moving_variance, _WIDE))
    return tf.cast(mean, inputs.dtype), tf.cast(variance, inputs.dtype)


def _local_sums(layer: Any, inputs: Tensor, mask: Tensor | None) -> list[Tensor]:
    """Return for each channel the sum of this rank's values, the sum of their squares, and their number.

    Values are added as distances from a number near their mean, so that no digits are lost before sums are wide.
    """
    own = layer.axis % inputs.shape.rank
    axes = [axis for axis in range(inputs.shape.rank) if axis != own]
    if mask is None:
        channels = tf.shape(inputs)[own]
        count = tf.fill([channels], tf.cast(tf.size(inputs) // channels, inputs.dtype))
    else:
        is_counted = tf.broadcast_to(tf.cast(mask, tf.bool)[..., tf.newaxis], tf.shape(inputs))
        count = tf.reduce_sum(tf.cast(is_counted, inputs.dtype), axes)

    def added(values: Tensor) -> Tensor:
        return tf.reduce_sum(values if mask is None else tf.where(is_counted, values, 0), axes)

    middle = tf.stop_gradient(tf.math.divide_no_nan(added(inputs), count))
    distances = inputs - tf.reshape(middle, [-1 if axis == own else 1 for axis in range(inputs.shape.rank)])
    near, squares, count, middle = map(_wide, (added(distances), added(distances**2), count, middle))
    return [near + count * middle, squares + 2 * middle * near + count * middle**2, count]


def _summed(replica: Replica, sums: list[Tensor]) -> list[Tensor]:
    """Return the sums over all ranks, by an exchange whose gradient is an exchange.

    A rank's gradients are weighted by its rows later on. What comes from other ranks has the weight of their rows, so
    it is divided by the rows of this rank.
    """
    rows = _wide(tf.constant(1.0) if replica.step is None else replica.step.rows)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def over_ranks(*values: Tensor) -> Any:
        def gradient(*upstream: Tensor) -> list[Tensor]:
            weighted = [tf.math.multiply_no_nan(each, rows) for each in upstream]
            return [tf.math.divide_no_nan(each, rows) for each in replica.transport.sum(weighted)]

        return replica.transport.sum(list(values)), gradient

    return list(over_ranks(*sums))


def _wide(tensor: Tensor) -> Tensor:
    return tf.cast(tensor, _WIDE)
