"""The state of one model that is trained on many ranks, and of its current step."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras

import tensorflow as tf
from emberflow.strategies.transport.interface import Tensor, Transport

Variable = Any  # keras.Variable


class Step:
    """One training or test step, while it is traced or run."""

    def __init__(self, replica: "Replica", data: Any, *, is_training: bool) -> None:
        self.is_training = is_training
        self.rows = rows_of(data)
        self.total: Tensor | None = None  # rows of all ranks, known after the first reduction
        self.is_reduced = False
        self.logs_are_reduced = False
        self._is_settled = False
        model = replica.model
        variables = [variable for metric in model.metrics for variable in metric.variables]
        self._state = {id(each): (each, tf.convert_to_tensor(each)) for each in variables}
        self._means = [each for each in model.metrics if _may_count_batches(each, replica)]
        weights = model.non_trainable_weights if is_training else []
        floats = [each for each in weights if tf.as_dtype(each.dtype).is_floating]
        self._statistics = [(each, tf.convert_to_tensor(each)) for each in floats]

    def note_total(self, total: Tensor) -> None:
        """Note the rows of all ranks, unless they are known only inside a branch of the step's graph."""
        self.is_reduced = True
        if getattr(total, "graph", None) is getattr(self.rows, "graph", None):
            self.total = total

    def settle(self) -> None:
        """Undo what a step without rows did, else weight its means by rows. Once per step.

        Statistics of no rows are NaN, and so may be the loss; a rank without rows must add nothing.
        """
        if self._is_settled:
            return
        self._is_settled = True
        is_empty = tf.equal(self.rows, 0.0)
        factors = self._factors()
        for key, (variable, before) in self._state.items():
            now = tf.convert_to_tensor(variable)
            if key in factors:
                now = before + (now - before) * factors[key]
            variable.assign(tf.where(is_empty, before, now))
        if self._statistics:  # may include frozen weights, too large to be written in each step
            tf.cond(is_empty, self._undo_statistics, lambda: tf.constant(0))

    def _undo_statistics(self) -> Tensor:
        for variable, before in self._statistics:
            variable.assign(before)
        return tf.constant(0)

    def _factors(self) -> dict[int, Tensor]:
        """Weight a mean that counts each batch once by the rank's share of the rows in this step.

        Keras counts the losses of single outputs so, and so do most custom steps: one process would have
        counted one batch of all ranks' rows once.
        """
        share = self.rows if self.total is None else tf.math.divide_no_nan(self.rows, self.total)
        factors: dict[int, Tensor] = {}
        for metric in self._means:
            if id(metric.count) in self._state:  # else it was made during this very step
                count, before = self._state[id(metric.count)]
                rise = tf.convert_to_tensor(count) - before
                counts_batches = tf.abs(rise - 1.0) < 0.01  # the count is a sum of shares, and not exact
                factor = tf.where(counts_batches, tf.cast(share, rise.dtype), 1.0)
                factors |= {id(metric.count): factor, id(metric.total): factor}
        return factors


def _may_count_batches(metric: Any, replica: "Replica") -> bool:
    """Whether a metric is a plain mean, but not the loss that Keras' own step weighs by rows."""
    is_own_loss = metric.name == "loss" and not replica.has_own_step
    return type(metric) is keras.metrics.Mean and not is_own_loss


class Replica:
    """One model on this rank, and what the hooks on it share."""

    def __init__(self, model: Any, transport: Transport, seed: int | None) -> None:
        self.model = model
        self.transport = transport
        self.seed = seed
        self.step: Step | None = None
        self.is_broadcast = False  # whether all ranks started from the chief's weights
        self.is_prepared = False  # whether all variables exist that a step reads before it runs
        self.has_trained = False  # whether there are moving statistics that were not averaged yet
        self.results: dict[str, Any] = {}  # of all ranks, when a training epoch or an evaluation last ended
        self.stop_requested = tf.Variable(0.0, trainable=False, name="stop_requested")
        self.stop_agreed = tf.Variable(0.0, trainable=False, name="stop_agreed")
        self.rows_seen = tf.Variable(0.0, trainable=False, name="rows_seen")

    @property
    def is_chief(self) -> bool:
        """Whether this rank writes files for all ranks."""
        return self.transport.rank == 0

    @property
    def has_own_step(self) -> bool:
        """Whether the model's class has a training step of its own."""
        return type(self.model).train_step is not keras.Model.train_step

    @contextlib.contextmanager
    def stepping(self, data: Any, *, is_training: bool) -> Iterator[Step]:
        """Set the current step for the block."""
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
