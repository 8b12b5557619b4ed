"""Rows of the node that runs a step, wherever the step was built.

The chief builds one graph for all workers, and TensorFlow sends it to them. The rows must not be sent: each node has
its own, in its own process. So the graph names a Python function that every process registers under the same name,
and that returns the next batch of its own process.

A node that has used all its rows of an epoch takes those of others, batch by batch: every row is trained on once per
epoch, and a slow node does not make the fast ones wait.
"""

import threading
from typing import Any

import numpy as np
from tensorflow.python.ops import script_ops  # the table that tf.raw_ops.PyFunc looks names up in

import tensorflow as tf
from emberflow.strategies.parameter_server.row_exchange import Leaves, PeerRows

_HEAD = [tf.int64, tf.int64, tf.bool]  # owner's rank, rows, whether no node has any left


class RowSource:
    """The batches of one dataset on this node, epoch after epoch. Must live as long as the graph that names it.

    Args:
        name: Its name in the graph and for other nodes.
        dataset: Each iteration is one epoch.
        rank: This node's number.
        first_epoch: The epoch of its first iteration; earlier epochs have no rows here.
        peer_rows: The rows of other nodes, for when there are no more here.
    """

    def __init__(
        self, name: str, dataset: Any, *, rank: int, first_epoch: int = 0, peer_rows: PeerRows | None = None
    ) -> None:
        self.spec = dataset.element_spec
        self.dataset = dataset
        self._name = name
        self._rank = rank
        self._first = first_epoch
        self._peer_rows = peer_rows
        self._epoch = -1
        self._batches: Any = None
        self._lock = threading.Lock()
        leaves = tf.nest.flatten(self.spec, expand_composites=True)
        self._dtypes = [leaf.dtype for leaf in leaves]
        self._no_rows = [_empty(leaf) for leaf in leaves]
        self._registered = (
            self.fetch
        )  # TensorFlow's table refers to it weakly, and a bound method is a new object
        # No public function lets the caller choose the name.
        script_ops._py_funcs._funcs[_token(name)] = self._registered  # noqa: SLF001

    def take(self, epoch: int) -> tuple[int, Leaves] | None:
        """Return the rows and the tensors of this node's next batch; None when the epoch has no more here."""
        with self._lock:
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
        """Return the owner's rank, the rows, whether the epoch has ended, and the tensors of the next batch."""
        epoch = int(number)
        own = self.take(epoch)
        if own is not None:
            rows, leaves = own
            return [np.int64(self._rank), np.int64(rows), np.False_, *(leaf.numpy() for leaf in leaves)]
        taken = self._peer_rows.take(self._name, epoch, self._dtypes) if self._peer_rows else None
        if taken is not None:
            owner, rows, leaves = taken
            return [np.int64(owner), np.int64(rows), np.False_, *(leaf.numpy() for leaf in leaves)]
        return [np.int64(self._rank), np.int64(0), np.True_, *self._no_rows]


def next_batch(name: str, spec: Any, epoch: Any) -> tuple[Any, Any, Any, Any]:
    """Return, in a graph, the next batch of the source of this name on the node that runs the graph."""
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
