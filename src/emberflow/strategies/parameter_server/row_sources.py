"""Rows of the node that runs a step, wherever the step was built.

The chief builds one graph for all workers, and TensorFlow sends it to them. What must not be sent is the rows: each
node has its own, in its own process. So the graph names a Python function that every process knows by the same
name, and that gives the next batch of this very process.

A node that has given all its rows of an epoch takes over those of others, batch by batch: so every row is trained on
once in each epoch, and a slow node does not keep the fast ones waiting.
"""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from tensorflow.python.ops import script_ops  # the table that tf.raw_ops.PyFunc looks names up in

import tensorflow as tf
from emberflow.strategies.parameter_server.row_exchange import Leaves, Others

_HEAD = [tf.int64, tf.int64, tf.bool]  # whose rows, how many, whether there are no more anywhere
_kept: dict[str, Callable[..., Any]] = {}  # TensorFlow's table holds them only as long as somebody else does


class Source:
    """The batches of one dataset on this node, an epoch after the other.

    Args:
        name: What the graph and other nodes call it.
        dataset: Gives an epoch with each iteration.
        rank: This node's number.
        first_epoch: The epoch of its first iteration; before that there is nothing.
        others: Where other nodes' rows are, for when there are no more here.
    """

    def __init__(
        self, name: str, dataset: Any, *, rank: int, first_epoch: int = 0, others: Others | None = None
    ) -> None:
        self.spec = dataset.element_spec
        self.dataset = dataset
        self._name = name
        self._rank = rank
        self._first = first_epoch
        self._others = others
        self._epoch = -1
        self._batches: Any = None
        self._taking = threading.Lock()
        leaves = tf.nest.flatten(self.spec, expand_composites=True)
        self._dtypes = [leaf.dtype for leaf in leaves]
        self._nothing = [_empty(leaf) for leaf in leaves]
        _kept[_token(name)] = known = self.fetch
        script_ops._py_funcs._funcs[_token(name)] = known  # noqa: SLF001 - no public way lets us choose the name

    def take(self, epoch: int) -> tuple[int, Leaves] | None:
        """Return rows and tensors of the next batch of this node, or None when it has no more in this epoch."""
        with self._taking:
            if epoch > self._epoch:
                self._epoch = epoch
                self._batches = iter(self.dataset) if epoch >= self._first else None
            batch = None if self._batches is None or epoch < self._epoch else next(self._batches, None)
            if batch is None:
                if epoch == self._epoch:
                    self._batches = None
                return None
            return _rows(batch), tf.nest.flatten(batch, expand_composites=True)

    def fetch(self, number: Any) -> list[Any]:
        """Return whose rows, how many, whether the epoch is over, and the tensors of the next batch."""
        epoch = int(number)
        mine = self.take(epoch)
        if mine is not None:
            rows, leaves = mine
            return [np.int64(self._rank), np.int64(rows), np.False_, *(leaf.numpy() for leaf in leaves)]
        theirs = self._others.take(self._name, epoch, self._dtypes) if self._others else None
        if theirs is not None:
            owner, rows, leaves = theirs
            return [np.int64(owner), np.int64(rows), np.False_, *(leaf.numpy() for leaf in leaves)]
        return [np.int64(self._rank), np.int64(0), np.True_, *self._nothing]


def next_batch(name: str, spec: Any, epoch: Any) -> tuple[Any, Any, Any, Any]:
    """Return, in a graph, what the source of this name gives on the node that runs the graph."""
    leaves = tf.nest.flatten(spec, expand_composites=True)
    outputs = tf.raw_ops.PyFunc(
        input=[epoch], token=_token(name), Tout=[*_HEAD, *(leaf.dtype for leaf in leaves)]
    )
    owner, rows, is_over = (tf.ensure_shape(each, []) for each in outputs[:3])
    tensors = [tf.ensure_shape(each, leaf.shape) for each, leaf in zip(outputs[3:], leaves, strict=True)]
    return owner, rows, is_over, tf.nest.pack_sequence_as(spec, tensors, expand_composites=True)


def _token(name: str) -> str:
    return f"emberflow-{name}"


def _empty(leaf: Any) -> Any:
    shape = [size or 0 for size in leaf.shape.as_list()]
    return np.zeros(shape, object if leaf.dtype == tf.string else leaf.dtype.as_numpy_dtype)


def _rows(batch: Any) -> int:
    first = tf.nest.flatten(batch)[0]
    return int(first.nrows() if isinstance(first, tf.RaggedTensor) else first.shape[0])
