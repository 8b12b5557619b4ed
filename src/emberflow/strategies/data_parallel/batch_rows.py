"""The rows of a batch: how many there are, some of them, and the rows of several batches as one batch."""

from collections.abc import Sequence
from typing import Any

import keras

import tensorflow as tf
from emberflow.strategies.transport.interface import Tensor


def rows_of(data: Any) -> Tensor:
    """Return the first dimension of a batch, which may be 0, as a float."""
    x = keras.utils.unpack_x_y_sample_weight(data)[0]
    first = next(leaf for leaf in tf.nest.flatten(x) if leaf is not None)
    return tf.cast(_rows_of_leaf(first), tf.float32)


def take_rows(data: Any, start: int, stop: int) -> Any:
    """Return some rows of a batch, with the batch's structure."""
    return tf.nest.map_structure(lambda leaf: _taken(leaf, start, stop), data)


def join_rows(batches: Sequence[Any]) -> Any:
    """Return the rows of all batches as one batch."""
    return tf.nest.map_structure(lambda *leaves: _joined(leaves), *batches)


def spec_of_leaf(leaf: Any) -> Any:
    """Return the type of one tensor of a batch, for any number of rows."""
    if leaf is None:
        return None
    spec = tf.type_spec_from_value(leaf)
    if isinstance(spec, tf.RaggedTensorSpec):
        return tf.RaggedTensorSpec(
            [None, *spec.shape[1:]], spec.dtype, spec.ragged_rank, spec.row_splits_dtype
        )
    return type(spec)([None, *spec.shape[1:]], spec.dtype)  # of a dense or a sparse tensor


def _rows_of_leaf(leaf: Any) -> Tensor:
    if isinstance(leaf, tf.RaggedTensor):
        return leaf.nrows()
    return leaf.dense_shape[0] if isinstance(leaf, tf.SparseTensor) else tf.shape(leaf)[0]


def _taken(leaf: Any, start: int, stop: int) -> Any:
    if leaf is None or not isinstance(leaf, tf.SparseTensor):
        return leaf if leaf is None else leaf[start:stop]
    rest = leaf.dense_shape[1:]
    return tf.sparse.slice(
        leaf, tf.concat([[start], tf.zeros_like(rest)], 0), tf.concat([[stop - start], rest], 0)
    )


def _joined(leaves: Sequence[Any]) -> Any:
    if leaves[0] is None:
        return None
    join = (
        tf.sparse.concat
        if isinstance(leaves[0], tf.SparseTensor)
        else lambda axis, each: tf.concat(each, axis)
    )
    return join(0, list(leaves))
