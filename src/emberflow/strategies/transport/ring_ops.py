"""The ring inside TensorFlow graphs."""

from typing import TYPE_CHECKING

import numpy as np

import tensorflow as tf
from emberflow.strategies.transport.buckets import divide_into_buckets
from emberflow.strategies.transport.interface import Array, Tensor

if TYPE_CHECKING:
    from emberflow.strategies.transport.ring import Ring
    from emberflow.strategies.transport.rounded_sum import Residuals

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


def average_tensors(
    ring: "Ring", head: Tensor, tensors: list[Tensor], residuals: "Residuals | None" = None
) -> tuple[Tensor, list[Tensor]]:
    """Return the sum of the heads, and each tensor's average; half floats are added as float32."""
    if ring.ranks == 1 or not tensors:
        return sum_tensors(ring, [head])[0], list(tensors)
    given = [tf.convert_to_tensor(tensor) for tensor in tensors]
    wide = [_widened(tensor) for tensor in given]
    sizes = [(tensor.dtype.name, (tensor.shape.num_elements() or 0) * tensor.dtype.size) for tensor in wide]
    buckets = divide_into_buckets(sizes, ring.bucket_bytes)
    if len(buckets) == 1:
        totals, *averages = _average_at_once(ring, head, wide, buckets, residuals)
    else:
        totals, *averages = _average_in_buckets(ring, head, wide, buckets, residuals)
    order = [place for bucket in buckets for place in bucket]
    averages = [averages[order.index(place)] for place in range(len(order))]
    totals.set_shape(head.shape)
    for each, tensor in zip(averages, given, strict=True):
        each.set_shape(tensor.shape)
    return totals, [tf.cast(each, tensor.dtype) for each, tensor in zip(averages, given, strict=True)]


def _average_at_once(
    ring: "Ring",
    head: Tensor,
    wide: list[Tensor],
    buckets: list[list[int]],
    residuals: "Residuals | None",
) -> list[Tensor]:
    """Average what is in one bucket by one op that waits: all gradients are there before it could begin."""
    given = [wide[place] for place in buckets[0]]

    def average(head: Array, *arrays: Array) -> list[Array]:
        return ring.average_arrays(head, arrays, residuals)

    return list(tf.numpy_function(average, [head, *given], [tensor.dtype for tensor in (head, *given)]))


def _average_in_buckets(
    ring: "Ring",
    head: Tensor,
    wide: list[Tensor],
    buckets: list[list[int]],
    residuals: "Residuals | None",
) -> list[Tensor]:
    """Submit each bucket when its gradients are there, and wait for all of them at the end."""
    exchange = ring.bucket_exchange

    def submit(place: int) -> Tensor:
        def hand_over(number: Array, *arrays: Array) -> Array:
            exchange.submit(int(number), place, arrays)
            return number

        return tf.numpy_function(hand_over, [number, *(wide[each] for each in buckets[place])], tf.int64)

    def wait(number: Array, *submitted: Array) -> list[Array]:  # noqa: ARG001 - it depends on all of them
        totals, averages = exchange.wait(int(number))
        return [totals, *(array for bucket in averages for array in bucket)]

    def begin(head: Array) -> Array:
        return np.asarray(exchange.begin(head, len(buckets), residuals), np.int64)

    number = tf.numpy_function(begin, [head], tf.int64)
    submitted = [submit(place) for place in range(len(buckets))]
    types = [wide[place].dtype for bucket in buckets for place in bucket]
    return list(tf.numpy_function(wait, [number, *submitted], [head.dtype, *types]))


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
