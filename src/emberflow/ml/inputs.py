"""Columns of the DataFrame to inputs and outputs of the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from emberflow._score.keras_model import describe_keras
from emberflow._score.model_facts import Tensor
from emberflow.errors import ModelError


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns of one training.

    Attributes:
        features: One or several.
        labels: One or several; none for a model that needs no labels.
        weight: Sample weights, or None.
        binary: Which of the features are raw bytes.
    """

    features: tuple[str, ...]
    labels: tuple[str, ...]
    weight: str | None = None
    binary: tuple[str, ...] = ()


def dataset_options(model: Any, columns: Columns) -> dict[str, Any]:
    """Return what `ctx.dataset` must be asked for, so that its batches fit the model."""
    inputs, outputs = tensors_of(model)
    options: dict[str, Any] = {"features": _by_name([tensor.name for tensor in inputs], columns.features)}
    if columns.labels:
        options["label"] = _by_name([tensor.name for tensor in outputs], columns.labels)
    if columns.weight:
        options["weight"] = columns.weight
    if len(inputs) == len(columns.features):
        shapes = [tensor.shape for tensor in _in_order(inputs, columns.features)]
        pairs = zip(columns.features, shapes, strict=True)
        options["shapes"] = {column: shape for column, shape in pairs if shape and None not in shape}
    options["dtypes"] = dict.fromkeys(columns.binary, "uint8")
    return options


def is_side_by_side(model: Any, columns: Columns) -> bool:
    """Whether several columns go into the model's only input."""
    return len(columns.features) > 1 and len(tensors_of(model)[0]) == 1


def tensors_of(model: Any) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the model's inputs and outputs; none for a model that learns its shapes from the first batch."""
    if not model.built:
        return (), ()
    facts = describe_keras(model)
    return facts.inputs, facts.outputs


def put_side_by_side(dataset: Any, columns: Columns) -> Any:
    """Return the dataset with its feature columns as one tensor, in their order."""
    import tensorflow as tf

    def joined(features: dict[str, Any], *rest: Any) -> Any:
        parts = [tf.cast(features[name], tf.float32) for name in columns.features]
        flat = [tf.reshape(part, [tf.shape(part)[0], _width(part)]) for part in parts]
        return (tf.concat(flat, axis=1), *rest)

    return dataset.map(joined)


def _width(part: Any) -> int:
    width = 1
    for size in part.shape[1:]:
        width *= size
    return width


def _by_name(names: Sequence[str], columns: Sequence[str]) -> Any:
    """Return one column for one tensor; else a dict from the model's names to columns, by name or by order."""
    if len(columns) == 1:
        return columns[0]
    if set(names) == set(columns):
        return {name: name for name in names}
    if len(names) == len(columns):
        return dict(zip(names, columns, strict=True))
    if len(names) <= 1:
        return list(columns)
    raise ModelError(
        f"The model has {len(names)} inputs or outputs, {list(names)}, for {len(columns)} columns. "
        f"Received: {list(columns)}.",
        fix="Pass as many columns as the model has inputs (featuresCols) and outputs (labelCols).",
    )


def _in_order(tensors: Sequence[Tensor], columns: Sequence[str]) -> list[Tensor]:
    """Return the tensors in the order of the columns that go to them."""
    by_name = {tensor.name: tensor for tensor in tensors}
    return [by_name[column] for column in columns] if set(by_name) == set(columns) else list(tensors)
