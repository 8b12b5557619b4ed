"""What is known of one model that is trained on many ranks, and the step that it is in."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras

import tensorflow as tf
from emberflow.strategies.transport import Tensor, Transport

Variable = Any  # keras.Variable


class Step:
    """One training or test step, while it is traced or run."""

    def __init__(self, replica: "Replica", data: Any, *, is_training: bool) -> None:
        self.is_training = is_training
        self.rows = rows_of(data)
        self.total: Tensor | None = None  # rows of all ranks, known after the first reduction
        self.is_reduced = False
        self.logs_are_reduced = False
        self._replica = replica
        self._is_settled = False
        model = replica.model
        self._means = [metric for metric in model.metrics if type(metric) is keras.metrics.Mean]
        kept = [v for metric in model.metrics for v in metric.variables]
        if is_training:
            kept += [v for v in model.non_trainable_weights if tf.as_dtype(v.dtype).is_floating]
        self._before = [(variable, tf.convert_to_tensor(variable)) for variable in kept]

    def note_total(self, total: Tensor) -> None:
        """Note the rows of all ranks, unless they are known only inside a branch of the step's graph."""
        self.is_reduced = True
        if getattr(total, "graph", None) is getattr(self.rows, "graph", None):
            self.total = total

    def settle(self) -> None:
        """Undo what a step without rows did, else weigh its means by rows. Once in each step.

        Statistics of no rows are NaN, and so may be a loss; a rank without rows must add nothing.
        """
        if self._is_settled:
            return
        self._is_settled = True
        tf.cond(tf.equal(self.rows, 0.0), self._undo, self._weigh)

    def _undo(self) -> Tensor:
        for variable, before in self._before:
            variable.assign(before)
        return tf.constant(0)

    def _weigh(self) -> Tensor:
        """Give a mean that counts each batch once the weight that the rank has in this step.

        Keras counts the losses of single outputs so, and so do most custom steps: one process would have
        counted one batch of all ranks' rows once.
        """
        share = self.rows if self.total is None else tf.math.divide_no_nan(self.rows, self.total)
        before = {id(variable): value for variable, value in self._before}
        for metric in self._means:
            if id(metric.count) not in before:  # made during this very step
                continue
            rise = tf.convert_to_tensor(metric.count) - before[id(metric.count)]
            factor = tf.where(self._counts_batches(metric, rise), tf.cast(share, rise.dtype), 1.0)
            for variable in (metric.total, metric.count):
                old = before[id(variable)]
                variable.assign(old + (tf.convert_to_tensor(variable) - old) * factor)
        return tf.constant(0)

    def _counts_batches(self, metric: Any, rise: Tensor) -> Tensor:
        """Whether the count rose by one for the whole batch. For one row the metric's origin decides."""
        is_batch = tf.abs(rise - 1.0) < 0.01  # the count is a sum of shares, and not exact
        is_keras_own = metric.name == "loss" and not self._replica.has_own_step
        return tf.logical_and(is_batch, tf.not_equal(self.rows, 1.0)) if is_keras_own else is_batch


class Replica:
    """One model on this rank, and what the hooks on it share."""

    def __init__(self, model: Any, transport: Transport, seed: int | None) -> None:
        self.model = model
        self.transport = transport
        self.seed = seed
        self.step: Step | None = None
        self.is_spread = False  # whether all ranks started from the chief's weights
        self.is_prepared = False  # whether all state exists that a step needs to look at before it runs
        self.has_trained = False  # whether there are moving statistics that were not averaged yet
        self.results: dict[str, Any] = {}  # of all ranks, when a training epoch or an evaluation last ended
        self.stop_asked = tf.Variable(0.0, trainable=False, name="stop_asked")
        self.stop_agreed = tf.Variable(0.0, trainable=False, name="stop_agreed")
        self.rows_seen = tf.Variable(0.0, trainable=False, name="rows_seen")

    @property
    def is_chief(self) -> bool:
        """Whether this rank writes for all."""
        return self.transport.rank == 0

    @property
    def has_own_step(self) -> bool:
        """Whether the model's class has a training step of its own."""
        return type(self.model).train_step is not keras.Model.train_step

    @contextlib.contextmanager
    def stepping(self, data: Any, *, is_training: bool) -> Iterator[Step]:
        """Be in a step for the length of the block."""
        outer, self.step = self.step, Step(self, data, is_training=is_training)
        try:
            yield self.step
        finally:
            self.step = outer


def rows_of(data: Any) -> Tensor:
    """Return the first dimension of a batch, which may be 0, as a float."""
    x = keras.utils.unpack_x_y_sample_weight(data)[0]
    first = next(leaf for leaf in tf.nest.flatten(x) if leaf is not None)
    if isinstance(first, tf.RaggedTensor):
        rows = first.nrows()
    elif isinstance(first, tf.SparseTensor):
        rows = first.dense_shape[0]
    else:
        rows = tf.shape(first)[0]
    return tf.cast(rows, tf.float32)
