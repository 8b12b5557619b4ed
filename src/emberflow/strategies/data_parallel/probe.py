"""Finds out what each loss and metric of a model is over rows: a few rows through the model, in parts and together.

Whether a loss sums or averages cannot be read from it. So some rows of the first batch go through the model in
inference as a whole, in two parts, and twice; `row_kinds` compares the numbers. Nothing is left behind: inside
`keras.StatelessScope` no variable is written, neither weights nor metrics nor seeds.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

import tensorflow as tf
from emberflow.strategies.data_parallel.batch_rows import join_rows, rows_of, take_rows
from emberflow.strategies.data_parallel.loss_weighting import (
    computes_own_loss,
    scaled_weights,
    unmasked_steps,
)
from emberflow.strategies.data_parallel.model_checks import layers_of
from emberflow.strategies.data_parallel.replica import Replica
from emberflow.strategies.data_parallel.row_kinds import Kind, Kinds, kind_of, merged
from emberflow.strategies.transport.interface import Array, Tensor

_MOST_ROWS = 8
_ROUNDING = 1e-4  # relative; losses that are means or sums differ by rounding only
_HALF_ROUNDING = 2e-2  # the same with half floats
_VARIATION = 0.1  # of the weights, where a loss is zero with the real ones


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """The numbers of one batch.

    Attributes:
        rows: How many rows it has.
        steps: For each output, how many unmasked steps; None without a mask.
        outputs: The loss of each output.
        additions: Each entry of ``model.losses``.
        states: What it added to each variable of the metrics.
    """

    rows: float
    steps: list[float | None]
    outputs: list[float]
    additions: list[float]
    states: list[Array]


_Trials = list[tuple[_Seen, list[_Seen]]]  # a batch, and its parts


def probe(replica: Replica, batch: Any) -> Kinds:
    """Return the kinds of all losses and metrics of a compiled model, from a batch with rows."""
    rows = min(int(rows_of(batch)), _MOST_ROWS)
    whole = take_rows(batch, 0, rows)
    first = max(1, rows // 3)  # parts of different sizes tell more
    batches = [whole, join_rows([whole, whole])]
    if rows > 1:
        batches += [take_rows(whole, 0, first), take_rows(whole, first, rows)]
    kinds = _kinds(replica, _see_all(replica, batches, 0.0))
    outputs = kinds.outputs if _has_loss(replica.model) else ()
    if Kind.UNKNOWN in (*outputs, *kinds.additions):  # a new model may predict 0, and its loss may be 0
        again = _kinds(replica, _see_all(replica, batches, _VARIATION))
        return Kinds.from_codes([kinds.to_codes(), again.to_codes()])
    return kinds


def _see_all(replica: Replica, batches: list[Any], variation: float) -> list[_Seen]:
    # Regularizers read only weights that have a value of the scope.
    weights = replica.model.trainable_variables
    values = [_varied(weight, variation, place) for place, weight in enumerate(weights)]
    mapping = list(zip(weights, values, strict=True))
    scope = keras.StatelessScope(state_mapping=mapping, collect_losses=True)
    with replica.probing(), scope, np.errstate(invalid="ignore"):
        return [_see(replica, scope, batch) for batch in batches]


def _varied(weight: Any, variation: float, seed: int) -> Tensor:
    """Return another value for a weight, by numbers that do not come from the program's random state."""
    value = tf.convert_to_tensor(weight)
    if not variation or not value.dtype.is_floating:
        return value
    return value + tf.cast(variation * tf.random.stateless_normal(value.shape, [seed, 0]), value.dtype)


def _see(replica: Replica, scope: Any, batch: Any) -> _Seen:
    model = replica.model
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
    in_inference = {"training": False} if "training" in inspect.signature(model.call).parameters else {}
    prediction = model(x, **in_inference)
    additions = [_number(each) for each in model.losses]
    outputs = _losses_of_outputs(model, x, y, prediction, sample_weight, sum(additions))
    is_own = computes_own_loss(model)
    steps = [None] if is_own else unmasked_steps(model, y, prediction)
    before = _states(replica, scope)
    model.compute_metrics(x, y, prediction, sample_weight)
    after = _states(replica, scope)
    return _Seen(
        rows=float(rows_of(batch)),
        steps=[None if count is None else float(count) for count in steps],
        outputs=outputs,
        additions=[] if is_own else additions,
        states=[now - then for now, then in zip(after, before, strict=True)],
    )


def _losses_of_outputs(
    model: Any, x: Any, y: Any, prediction: Any, sample_weight: Any, additions: float
) -> list[float]:
    """Return the loss of each output alone, by setting the weights of the other outputs to 0."""
    is_own = computes_own_loss(model)
    count = 1 if is_own else len(keras.tree.flatten(prediction))
    if not _has_loss(model):
        return [0.0] * count
    losses = []
    for place in range(count):
        alone: list[Any] = [None if other == place else 0.0 for other in range(count)]
        weights = scaled_weights(sample_weight, prediction, alone) if count > 1 else sample_weight
        total = _number(model.compute_loss(x=x, y=y, y_pred=prediction, sample_weight=weights))
        losses.append(total if is_own else total - additions)
    return losses


def _has_loss(model: Any) -> bool:
    return model.loss is not None or computes_own_loss(model)


def _states(replica: Replica, scope: Any) -> list[Array]:
    variables = [variable for _, variable in replica.states_of_metrics()]
    current = [scope.get_current_value(variable) for variable in variables]
    values = [variable if now is None else now for variable, now in zip(variables, current, strict=True)]
    return [np.asarray(tf.convert_to_tensor(value)).astype(np.float64) for value in values]


def _number(loss: Any) -> float:
    return float(tf.reduce_sum(tf.cast(loss, tf.float32)))


def _kinds(replica: Replica, seen: list[_Seen]) -> Kinds:
    whole, twice, *parts = seen
    trials = [(twice, [whole, whole]), *([(whole, parts)] if parts else [])]
    rounding = _HALF_ROUNDING if _has_half_floats(replica.model) else _ROUNDING
    additions = range(len(whole.additions))
    return Kinds(
        outputs=tuple(_kind_of_output(trials, place, rounding) for place in range(len(whole.outputs))),
        additions=tuple(_kind(trials, "additions", place, _rows, rounding) for place in additions),
        states=_kinds_of_states(replica, trials, rounding),
    )


def _kind_of_output(trials: _Trials, place: int, rounding: float) -> Kind:
    by_rows = _kind(trials, "outputs", place, _rows, rounding)
    if trials[0][0].steps[place] is None:
        return by_rows
    by_steps = _kind(trials, "outputs", place, lambda seen: seen.steps[place] or 0.0, rounding)
    if by_steps is Kind.NEITHER:  # a loss of the user's own may ignore the mask
        return by_rows
    return Kind.STEPS if by_steps is Kind.MEAN else by_steps


def _kinds_of_states(replica: Replica, trials: _Trials, rounding: float) -> tuple[Kind, ...]:
    kinds: dict[int, list[Kind]] = {}
    for place, (metric, variable) in enumerate(replica.states_of_metrics()):
        kind = _kind(trials, "states", place, _rows, rounding)
        is_float = tf.as_dtype(variable.dtype).is_floating  # shares of rows are no whole numbers
        is_finite = np.isfinite(np.asarray(tf.convert_to_tensor(variable)).astype(np.float64)).all()
        if not is_finite or (kind is Kind.MEAN and not is_float):  # infinite: a smallest or largest value
            kind = Kind.NEITHER
        kinds.setdefault(id(metric), []).append(kind)
    return tuple(kind for of_metric in kinds.values() for kind in _of_one_metric(of_metric))


def _of_one_metric(kinds: list[Kind]) -> list[Kind]:
    """Let what is unknown follow the means; sums and means together depend on the sizes of batches."""
    known = merged(kinds)
    replaced = {Kind.MEAN: Kind.UNKNOWN, Kind.NEITHER: Kind.MEAN}.get(known)
    return [known if kind is replaced else kind for kind in kinds]


def _kind(trials: _Trials, name: str, place: int, weight: Callable[[_Seen], float], rounding: float) -> Kind:
    """Return the kind of one number among those that were seen."""
    found = []
    for whole, parts in trials:
        numbers = [np.asarray(getattr(each, name)[place], np.float64) for each in (whole, *parts)]
        largest = max(float(np.abs(each).max(initial=0)) for each in numbers)
        cancelled = (
            sum(map(abs, whole.additions)) / 100
        )  # rounding of what was subtracted from the total loss
        tolerance = rounding * (largest + cancelled)
        found.append(kind_of(numbers[0], numbers[1:], [weight(part) for part in parts], tolerance))
    return merged(found)


def _rows(seen: _Seen) -> float:
    return seen.rows


def _has_half_floats(model: Any) -> bool:
    return any(layer.compute_dtype in ("float16", "bfloat16") for layer in (model, *layers_of(model)))
