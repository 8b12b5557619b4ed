"""Columns of the DataFrame for the inputs and outputs of the model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emberflow._feed.padding import PadTo
from emberflow._score.keras_model import describe_keras
from emberflow._score.model_facts import Tensor
from emberflow.errors import ModelError


@dataclass(frozen=True, kw_only=True)
class TrainingColumns:
    """The columns that a training reads.

    Attributes:
        features: Feature columns, one or several.
        labels: Label columns; none for a model without labels.
        weight: The column of sample weights, or None.
        binary: Those of the features that are raw bytes.
    """

    features: tuple[str, ...]
    labels: tuple[str, ...]
    weight: str | None = None
    binary: tuple[str, ...] = ()


def dataset_options(
    model: Any, columns: TrainingColumns, pad_to: Mapping[str, PadTo] | None = None
) -> dict[str, Any]:
    """Return the arguments of `ctx.dataset` for batches that match the inputs and outputs of the model.

    Args:
        model: The Keras model.
        columns: The columns that are read.
        pad_to: Columns of arrays to pad, whose shape follows from that.
    """
    inputs, outputs = tensors_of(model)
    options: dict[str, Any] = {"features": _by_name([tensor.name for tensor in inputs], columns.features)}
    if columns.labels:
        options["label"] = _by_name([tensor.name for tensor in outputs], columns.labels)
    if columns.weight:
        options["weight"] = columns.weight
    pairs = [(column, tensor.shape) for column, tensor in columns_of_inputs(columns, inputs)]
    options["shapes"] = {
        column: shape
        for column, shape in pairs
        if shape and None not in shape and column not in (pad_to or {})
    }
    options["dtypes"] = dict.fromkeys(columns.binary, "uint8")
    return options


def columns_of_inputs(columns: TrainingColumns, inputs: Sequence[Tensor]) -> list[tuple[str, Tensor]]:
    """Return each feature column with the input that it is for; none where several columns make one input."""
    if len(inputs) != len(columns.features):
        return []
    return list(zip(columns.features, _in_order(inputs, columns.features), strict=True))


def is_concatenated(model: Any, columns: TrainingColumns) -> bool:
    """Tell whether several columns make the model's only input."""
    return len(columns.features) > 1 and len(tensors_of(model)[0]) == 1


def tensors_of(model: Any) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the model's inputs and outputs; none for a model that is built by its first batch."""
    if not model.built:
        return (), ()
    facts = describe_keras(model)
    return facts.inputs, facts.outputs


def concatenate_features(dataset: Any, columns: TrainingColumns) -> Any:
    """Return the dataset with its feature columns concatenated, in their order."""
    import tensorflow as tf

    def joined(features: dict[str, Any], *rest: Any) -> Any:
        parts = [tf.cast(features[name], tf.float32) for name in columns.features]
        flat = [tf.reshape(part, [tf.shape(part)[0], _width(part)]) for part in parts]
        return (tf.concat(flat, axis=1), *rest)

    return dataset.map(tf.autograph.experimental.do_not_convert(joined))


def _width(part: Any) -> int:
    width = 1
    for size in part.shape[1:]:
        width *= size
    return width


def _by_name(names: Sequence[str], columns: Sequence[str]) -> Any:
    """Return one column for one tensor; otherwise columns by the model's names, matched by name or order."""
    if len(columns) == 1:
        return columns[0]
    if set(names) == set(columns):
        return {name: name for name in names}
    if len(names) == len(columns):
        return dict(zip(names, columns, strict=True))
    if len(names) <= 1:
        return list(columns)
    raise ModelError(
        f"There must be one column for each of the model's {len(names)} inputs or outputs, {list(names)}. "
        f"Received: {len(columns)} columns, {list(columns)}.",
        fix="Pass as many columns as the model has inputs (featuresCols) and outputs (labelCols).",
    )


def _in_order(tensors: Sequence[Tensor], columns: Sequence[str]) -> list[Tensor]:
    """Return the tensors in the order of their columns."""
    by_name = {tensor.name: tensor for tensor in tensors}
    return [by_name[column] for column in columns] if set(by_name) == set(columns) else list(tensors)
