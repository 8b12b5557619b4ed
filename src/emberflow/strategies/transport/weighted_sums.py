"""Averages by weights for a transport that can only sum: weighted before the sum, and divided after it."""

from collections.abc import Callable

import tensorflow as tf
from emberflow.strategies.transport.interface import Tensor

_HALVES = (tf.float16, tf.bfloat16)


def average_by_sum(
    sum_tensors: Callable[[list[Tensor]], list[Tensor]], head: Tensor, tensors: list[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """Return what `Transport.average` returns, by one sum."""
    wide = [tf.cast(tensor, tf.float32) if tensor.dtype in _HALVES else tensor for tensor in tensors]
    weighted = [tf.math.multiply_no_nan(each, tf.cast(head[0], each.dtype)) for each in wide]
    totals, *sums = sum_tensors([head, *weighted])
    averages = [tf.math.divide_no_nan(each, tf.cast(totals[0], each.dtype)) for each in sums]
    return totals, [tf.cast(each, given.dtype) for each, given in zip(averages, tensors, strict=True)]
