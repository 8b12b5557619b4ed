"""Columns of the DataFrame to inputs and outputs of the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
    inputs = _names_and_shapes(model, "input")
    options: dict[str, Any] = {"features": _by_name(inputs, columns.features)}
    if columns.labels:
        options["label"] = _by_name(_names_and_shapes(model, "output"), columns.labels)
    if columns.weight:
        options["weight"] = columns.weight
    if len(inputs) == len(columns.features):
        pairs = zip(columns.features, _shapes_for(inputs, columns.features), strict=True)
        options["shapes"] = {column: shape for column, shape in pairs if _is_fixed(shape)}
    options["dtypes"] = dict.fromkeys(columns.binary, "uint8")
    return options


def is_side_by_side(model: Any, columns: Columns) -> bool:
    """Whether several columns go into the model's only input."""
    return len(columns.features) > 1 and len(_names_and_shapes(model, "input")) == 1


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


def _by_name(tensors: Sequence[tuple[str, Any]], columns: Sequence[str]) -> Any:
    """Return one column for one tensor; else a dict from the model's names to columns, by name or by order."""
    if len(columns) == 1:
        return columns[0]
    names = [name for name, _ in tensors]
    if set(names) == set(columns):
        return {name: name for name in names}
    if len(names) == len(columns):
        return dict(zip(names, columns, strict=True))
    if len(names) <= 1:
        return list(columns)
    raise ModelError(
        f"The model has {len(names)} inputs or outputs, {names}, for {len(columns)} columns. "
        f"Received: {list(columns)}.",
        fix="Pass as many columns as the model has inputs (featuresCols) and outputs (labelCols).",
    )


def _shapes_for(inputs: Sequence[tuple[str, Any]], columns: Sequence[str]) -> list[Any]:
    by_name = dict(inputs)
    if set(by_name) == set(columns):
        return [by_name[column] for column in columns]
    return [shape for _, shape in inputs]


def _is_fixed(shape: Any) -> bool:
    return shape is not None and len(shape) > 0 and all(size is not None for size in shape)


def _names_and_shapes(model: Any, side: str) -> list[tuple[str, Any]]:
    """Return the model's inputs or outputs with the shape of one row; nothing for a model not built yet."""
    names = getattr(model, f"{side}_names", None)
    shapes = getattr(model, f"{side}_shape", None) if getattr(model, "built", False) else None
    if not names:
        return []
    if isinstance(shapes, dict):
        shapes = [shapes[name] for name in names]
    elif shapes is None or (shapes and not isinstance(shapes[0], tuple | list)):
        shapes = [shapes]
    rows = [None if shape is None else tuple(shape[1:]) for shape in shapes]
    return list(zip(names, rows, strict=False))
