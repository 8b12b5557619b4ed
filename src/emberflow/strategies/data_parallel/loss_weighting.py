"""Losses that are not means over rows, scaled so that weighting the ranks by rows makes them exact.

Ranks are weighted by their rows, which is right for means over rows. A sum, and a mean over the unmasked steps of
sequences, count more or less than that on each rank. So each is multiplied by a factor before the gradients are
computed: its own weight divided by the weight by rows. The totals that it takes are exchanged in the forward pass,
only for models that have such losses.
"""

import inspect
from typing import Any

import keras

import tensorflow as tf
from emberflow.errors import ModelError
from emberflow.strategies.data_parallel.replica import Replica, Step
from emberflow.strategies.data_parallel.row_kinds import Kind, Kinds
from emberflow.strategies.transport.interface import Tensor


def hook_loss(replica: Replica) -> None:
    """Let the model compute the loss that, weighted by rows, is that of all ranks' rows."""
    inner = replica.model.compute_loss
    signature = inspect.signature(inner)

    def compute_loss(*args: Any, **kwargs: Any) -> Any:
        if replica.step is None or replica.kinds is None:
            return inner(*args, **kwargs)
        given = signature.bind(*args, **kwargs)
        return _weighted_loss(replica, replica.step, replica.kinds, inner, given)

    replica.model.compute_loss = compute_loss


def computes_own_loss(model: Any) -> bool:
    """Whether the model's class has a `compute_loss` of its own: then its terms are not known."""
    return type(model).compute_loss is not keras.Model.compute_loss


def scaled_weights(sample_weight: Any, prediction: Any, factors: list[Any]) -> Any:
    """Return sample weights that multiply the loss of each output by its factor, if that is not None."""
    if not keras.tree.is_nested(prediction):
        return _scaled(sample_weight, factors[0])
    count = len(factors)
    given = (
        keras.tree.flatten(sample_weight) if keras.tree.is_nested(sample_weight) else [sample_weight] * count
    )
    scaled = [_scaled(weight, factor) for weight, factor in zip(given, factors, strict=True)]
    return keras.tree.pack_sequence_as(prediction, scaled)


def unmasked_steps(model: Any, y: Any, prediction: Any) -> list[Tensor | None]:
    """Return for each output how many steps its loss is a mean over; None where that is all of them."""
    labels, losses = _by_output(model, y, prediction), _by_output(model, model.loss, prediction)
    counts: list[Tensor | None] = []
    for output, label, loss in zip(keras.tree.flatten(prediction), labels, losses, strict=True):
        mask = getattr(output, "_keras_mask", None)  # what Keras' guide to masking reads too
        ignored = getattr(loss, "ignore_class", None)
        if ignored is not None and label is not None:
            is_class = tf.not_equal(label, tf.cast(ignored, tf.convert_to_tensor(label).dtype))
            mask = is_class if mask is None else tf.reshape(is_class, tf.shape(mask)) & mask
        counts.append(None if mask is None else tf.reduce_sum(tf.cast(mask, tf.float32)))
    return counts


def _weighted_loss(
    replica: Replica, step: Step, kinds: Kinds, inner: Any, given: inspect.BoundArguments
) -> Any:
    if not kinds.outputs:  # it was not probed
        return inner(*given.args, **given.kwargs)
    prediction = given.arguments.get("y_pred")
    if computes_own_loss(replica.model):
        (factor,), _ = _factors(replica, step, kinds, [None])
        total = inner(*given.args, **given.kwargs)
        return total if factor is None else total * tf.cast(factor, total.dtype)
    additions = _known_additions(replica, kinds)
    steps = unmasked_steps(replica.model, given.arguments.get("y"), prediction)
    factors, of_sums = _factors(replica, step, kinds, steps)
    if any(factor is not None for factor in factors):
        weights = given.arguments.get("sample_weight")
        given.arguments["sample_weight"] = scaled_weights(weights, prediction, factors)
    total = inner(*given.args, **given.kwargs)
    sums = [tf.cast(tf.reduce_sum(each), total.dtype) for each, kind in additions if kind is Kind.SUM]
    return total + tf.add_n(sums) * tf.cast(of_sums - 1, total.dtype) if sums else total


def _factors(
    replica: Replica, step: Step, kinds: Kinds, steps: list[Tensor | None]
) -> tuple[list[Tensor | None], Tensor]:
    """Return the factor of each output's loss, None for 1, and that of all sums."""
    by_steps = (Kind.STEPS, Kind.UNKNOWN)
    places = [
        place for place, kind in enumerate(kinds.outputs) if kind in by_steps and steps[place] is not None
    ]
    has_sums = Kind.SUM in (*kinds.outputs, *kinds.additions)
    of_sums, of_steps = tf.constant(float(replica.transport.ranks)), {}
    # Ranks may evaluate different numbers of batches: there all count as many rows as this one.
    if step.is_training and (has_sums or places):
        mine = tf.stack([step.rows, *(steps[place] for place in places)])
        (totals,) = replica.transport.sum([mine])
        of_sums = tf.math.divide_no_nan(totals[0], step.rows)
        shares = tf.math.divide_no_nan(mine, totals)
        of_steps = {place: shares[number] * of_sums for number, place in enumerate(places, 1)}
    outputs = [
        of_sums if kind is Kind.SUM else of_steps.get(place) for place, kind in enumerate(kinds.outputs)
    ]
    return outputs, of_sums


def _known_additions(replica: Replica, kinds: Kinds) -> list[tuple[Tensor, Kind]]:
    """Return ``model.losses``, each with its kind.

    Losses that are added in training only are refused: whether these are means or sums was not seen.
    """
    losses = replica.model.losses
    expected, received = len(kinds.additions), len(losses)
    if received == expected:
        return list(zip(losses, kinds.additions, strict=True))
    if replica.exact:
        raise ModelError(
            "Layers must add the same losses in training and in inference: whether each is a mean or a sum over rows "
            f"is found out in inference. Received: {received} losses in training, {expected} in inference",
            "Call add_loss whatever `training` is, or pass exact=False to take all of them for means.",
        )
    return []


def _by_output(model: Any, given: Any, prediction: Any) -> list[Any]:
    """Return what was given for the outputs, one each in the order of the outputs; None where there is none."""
    outputs = len(keras.tree.flatten(prediction))
    if isinstance(given, dict):
        names = (
            sorted(prediction)
            if isinstance(prediction, dict)
            else getattr(model, "output_names", sorted(given))
        )
        given = [given.get(name) for name in names]
    elif not isinstance(given, list | tuple):
        given = [given] * outputs
    return list(given) if len(given) == outputs else [None] * outputs


def _scaled(weight: Any, factor: Any) -> Any:
    if factor is None:
        return weight
    return factor if weight is None else tf.cast(weight, tf.float32) * factor
