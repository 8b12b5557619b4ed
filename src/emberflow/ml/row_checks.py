"""What the rows of a worker tell of a training that cannot work, before its first step."""

import logging
import math
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from emberflow._feed.arrays import find_leaf_columns, leaf_columns, list_levels
from emberflow._feed.element_types import BYTES
from emberflow._feed.shard_facts import UNSEEN, ColumnFacts
from emberflow._feed.shards import Shards
from emberflow._feed.tensor_columns import natural_dtype
from emberflow._feed.value_checks import rows_outside
from emberflow._score.model_facts import Tensor
from emberflow.errors import DataError
from emberflow.ml.model_columns import TrainingColumns, columns_of_inputs, tensors_of
from emberflow.ml.model_outputs import losses_of
from emberflow.ml.schema_checks import check_text, width_of, wrong_width

if TYPE_CHECKING:
    from emberflow._node.context import Context
    from emberflow._node.round_feed import Round

log = logging.getLogger("emberflow")


@dataclass(frozen=True, kw_only=True)
class LabelRange:
    """The labels that a loss can use.

    Attributes:
        loss: The loss's name.
        most: The greatest label; the least is 0.
        ignored: One more label, which the loss ignores.
        is_strict: Whether other labels are an error, not only unusual.
    """

    loss: str
    most: int
    ignored: int | None = None
    is_strict: bool = True


def check_rows(
    ctx: "Context | Round", model: Any, columns: TrainingColumns, name: str, padded: Container[str] = ()
) -> None:
    """Refuse rows that the model cannot be trained on.

    Args:
        ctx: This node's context.
        model: The Keras model, compiled.
        columns: The columns that are read.
        name: The name of the rows.
        padded: Columns whose rows get the model's width by padding.
    """
    inputs, outputs = tensors_of(model)
    check_features(ctx._shards(name), columns, inputs, padded)  # noqa: SLF001 - internal to Emberflow
    losses = losses_of(model, [tensor.name for tensor in outputs])
    if len(losses) != len(columns.labels):
        return
    for at, (column, loss) in enumerate(zip(columns.labels, losses, strict=True)):
        allowed = label_range_of(loss, _units(model, outputs, at))
        if allowed is not None:
            _check_labels(ctx, name, column, allowed)


def check_features(
    shards: Shards, columns: TrainingColumns, inputs: Sequence[Tensor], padded: Container[str] = ()
) -> None:
    """Refuse text for an input of numbers, and rows of another width than that of the model's input."""
    leaves = list(leaf_columns(shards.schema))
    for name, tensor in columns_of_inputs(columns, inputs):
        leaf = find_leaf_columns(leaves, name)[0]
        if name not in columns.binary and natural_dtype(leaf)[0] == BYTES:
            check_text(name, "string" if not list_levels(leaf.type)[0] else "array of string", tensor)
        if name not in padded:
            _check_width(name, tensor, shards)
    if len(inputs) == 1 and len(columns.features) > 1:
        _check_joint_width(columns, inputs[0], shards)


def _check_width(name: str, tensor: Tensor, shards: Shards) -> None:
    width = width_of(tensor)
    facts = shards.columns.get(name, ColumnFacts())
    if width is None or UNSEEN in facts.lengths:
        return
    least, most = (math.prod(length[end] for length in facts.lengths) for end in (0, 1))
    if least == most == width:
        return
    wrong, end = (least, 0) if least != width else (most, 1)
    ranks = shards.spans.get(name)
    where = f", {wrong} at rank {ranks[end]}" if ranks else ""
    received = f"rows of {least} values" if least == most else f"rows of {least} to {most} values{where}"
    raise wrong_width(name, tensor, received, most if least == most else None)


def _check_joint_width(columns: TrainingColumns, tensor: Tensor, shards: Shards) -> None:
    """Refuse several columns that are concatenated for the only input if they do not have its width together."""
    width = width_of(tensor)
    lengths = [shards.columns.get(name, ColumnFacts()).lengths for name in columns.features]
    if width is None or any(least != most for column in lengths for least, most in column):
        return
    received = sum(math.prod(least for least, _ in column) for column in lengths)
    if received != width:
        names = ", ".join(columns.features)
        raise wrong_width(names, tensor, f"{len(lengths)} columns with {received} values together", received)


def label_range_of(loss: Any, units: int | None) -> LabelRange | None:
    """Return the labels that one of Keras' own losses can use; None where it is another loss, or takes any."""
    import keras

    found = keras.losses.get(loss) if isinstance(loss, str) else loss
    config = getattr(found, "_fn_kwargs", {})  # `get_config` does not tell the axis
    own = (keras.losses.SparseCategoricalCrossentropy, keras.losses.sparse_categorical_crossentropy)
    if (type(found) is own[0] or found is own[1]) and units and config.get("axis", -1) == -1:
        name = "sparse_categorical_crossentropy"
        return LabelRange(loss=name, most=units - 1, ignored=config.get("ignore_class"))
    own = (keras.losses.BinaryCrossentropy, keras.losses.binary_crossentropy)
    if type(found) is own[0] or found is own[1]:
        return LabelRange(loss="binary_crossentropy", most=1, is_strict=False)
    return None


def _units(model: Any, outputs: Sequence[Tensor], at: int) -> int | None:
    """Return the size of an output; a Sequential that is not built yet ends with the layer that has it."""
    if outputs:
        shape = outputs[at].shape
        return shape[-1] if shape else None
    units = getattr(model.layers[-1], "units", None) if getattr(model, "layers", None) else None
    return units if isinstance(units, int) else None


def _check_labels(ctx: "Context | Round", name: str, column: str, allowed: LabelRange) -> None:
    leaves = list(leaf_columns(ctx._shards(name).schema))  # noqa: SLF001 - internal to Emberflow
    leaf = find_leaf_columns(leaves, column)[0]
    if natural_dtype(leaf)[0] == BYTES:
        return
    found = rows_outside(ctx.arrow(name), leaf, 0, allowed.most, allowed.ignored)
    if found is None:
        return
    value = found.least if found.least < 0 else found.most
    received = f"{value:g} in column {column!r}; {found.rows} of {ctx.rows(name)} rows of rank {ctx.rank} are outside"
    if not allowed.is_strict:
        log.warning("Labels for %s should be from 0 to 1. Received: %s.", allowed.loss, received)
        return
    more = f"Give the last layer {found.most + 1:g} units, or n" if found.least >= 0 else "N"
    raise DataError(
        f"Labels for {allowed.loss} must be from 0 to {allowed.most}, because the model's output has "
        f"{allowed.most + 1} units. Received: {received}.",
        fix=f"{more}umber the classes from 0 on: "
        f'StringIndexer(inputCol="{column}", outputCol="{column}Index").fit(df).transform(df).',
    )
