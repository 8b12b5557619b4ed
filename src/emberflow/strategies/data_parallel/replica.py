"""The state of one model that is trained on many ranks, and of its current step."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras

import tensorflow as tf
from emberflow._choices import WireDtype
from emberflow.strategies.data_parallel.batch_means import is_plain_mean, noting_batch_means
from emberflow.strategies.data_parallel.batch_rows import rows_of
from emberflow.strategies.data_parallel.row_kinds import Kind, Kinds
from emberflow.strategies.transport.interface import Tensor, Transport

Variable = Any  # keras.Variable


class Step:
    """One training or test step, while it is traced or run."""

    def __init__(self, replica: "Replica", data: Any, batch_means: set[int], *, is_training: bool) -> None:
        self.is_training = is_training
        self.rows = rows_of(data)
        self.total: Tensor | None = None  # rows of all ranks, known after the first reduction
        self.is_reduced = False
        self.logs_are_reduced = False
        self._is_settled = False
        model = replica.model
        variables = [variable for metric in model.metrics for variable in metric.variables]
        self._state = {id(each): (each, tf.convert_to_tensor(each)) for each in variables}
        self._batch_means = batch_means
        self._means_of_rows = {id(each) for each in replica.states_of_kind(Kind.MEAN)}
        weights = model.non_trainable_weights if is_training else []
        shared = {id(each) for layer in replica.shared_layers for each in layer.non_trainable_variables}
        floats = [each for each in weights if tf.as_dtype(each.dtype).is_floating and id(each) not in shared]
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
                now = before + (now - before) * tf.cast(factors[key], now.dtype)
            variable.assign(tf.where(is_empty, before, now))
        if self._statistics:  # may include frozen weights, too large to be written in each step
            tf.cond(is_empty, self._undo_statistics, lambda: tf.constant(0))

    def _undo_statistics(self) -> Tensor:
        for variable, before in self._statistics:
            variable.assign(before)
        return tf.constant(0)

    def _factors(self) -> dict[int, Tensor]:
        """Weight state that is a mean over rows, or counts batches, by the rank's share of the rows in this step."""
        share = self.rows if self.total is None else tf.math.divide_no_nan(self.rows, self.total)
        return dict.fromkeys(self._batch_means | self._means_of_rows, share)


class Replica:
    """One model on this rank, and what the hooks on it share."""

    def __init__(
        self,
        model: Any,
        transport: Transport,
        *,
        seed: int | None,
        exact: bool,
        wire_dtype: WireDtype = "float32",
    ) -> None:
        self.model = model
        self.transport = transport
        self.seed = seed
        self.exact = exact
        self.wire_dtype = wire_dtype  # as which gradients travel to other hosts
        self.kinds: Kinds | None = None  # of losses and metrics, known from the first batch on
        self.is_judged = False  # whether all ranks have agreed on these kinds
        self.step: Step | None = None
        self.is_probing = False  # whether the model is called outside of any step, and nothing is exchanged
        self.is_broadcast = False  # whether all ranks started from the chief's weights
        self.is_prepared = False  # whether all variables exist that a step reads before it runs
        self.has_trained = False  # whether there are moving statistics that were not averaged yet
        self.shared_layers: list[Any] = []  # whose statistics are those of all ranks' rows in each step
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

    def states_of_metrics(self) -> list[tuple[Any, Variable]]:
        """Return the variables of all metrics but `Mean`, each with its metric; `Mean` is known without a probe."""
        metrics = [
            each for metric in self.model.metrics for each in getattr(metric, "metrics", None) or [metric]
        ]
        others = [metric for metric in metrics if not is_plain_mean(metric)]
        return [(metric, variable) for metric in others for variable in metric.variables]

    def states_of_kind(self, kind: Kind) -> list[Variable]:
        """Return the variables of metrics that are of this kind."""
        kinds = self.kinds.states if self.kinds else ()
        return [
            variable
            for (_, variable), each in zip(self.states_of_metrics(), kinds, strict=False)
            if each is kind
        ]

    @contextlib.contextmanager
    def probing(self) -> Iterator[None]:
        """Compute metrics in the block without an exchange with other ranks."""
        self.is_probing = True
        try:
            yield
        finally:
            self.is_probing = False

    @contextlib.contextmanager
    def stepping(self, data: Any, *, is_training: bool) -> Iterator[Step]:
        """Set the current step for the block."""
        with noting_batch_means(self.model) as batch_means:
            outer, self.step = self.step, Step(self, data, batch_means, is_training=is_training)
            try:
                yield self.step
            finally:
                self.step = outer
