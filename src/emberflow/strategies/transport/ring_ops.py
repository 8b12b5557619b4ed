"""The ring inside TensorFlow graphs."""

from typing import TYPE_CHECKING

import numpy as np

import tensorflow as tf
from emberflow.strategies.transport.interface import Array, Tensor

if TYPE_CHECKING:
    from emberflow.strategies.transport.ring import Ring

_HALVES = (tf.float16, tf.bfloat16)


def sum_tensors(ring: "Ring", tensors: list[Tensor]) -> list[Tensor]:
    """Return the sum of each tensor over all ranks; half floats are added as float32."""
    if ring.ranks == 1 or not tensors:
        return list(tensors)
    given = [tf.convert_to_tensor(tensor) for tensor in tensors]
    wide = [_widened(tensor) for tensor in given]
    # Stateful: TensorFlow runs these calls in program order, and drops none.
    sums = tf.numpy_function(lambda *arrays: ring.sum_arrays(arrays), wide, [tensor.dtype for tensor in wide])
    sums = (
        sums if isinstance(sums, list | tuple) else [sums]
    )  # outside of graphs a single result is not in a list
    for total, tensor in zip(sums, given, strict=True):
        total.set_shape(tensor.shape)
    return [tf.cast(total, tensor.dtype) for total, tensor in zip(sums, given, strict=True)]


def gather_tensor(ring: "Ring", tensor: Tensor) -> Tensor:
    """Return all ranks' slices one after the other."""
    tensor = tf.convert_to_tensor(tensor)
    if ring.ranks == 1:
        return tensor
    wide = _widened(tensor)

    def collect(array: Array) -> Array:
        return np.concatenate(ring.all_gather(array)).reshape(-1, *array.shape[1:])

    whole = tf.numpy_function(collect, [wide], wide.dtype)
    whole.set_shape([None, *tensor.shape[1:]])
    return tf.cast(whole, tensor.dtype)


def _widened(tensor: Tensor) -> Tensor:
    return tf.cast(tensor, tf.float32) if tensor.dtype in _HALVES else tensor
