"""Which feature columns of an estimator are padded, and to which length."""

from collections.abc import Sequence

from emberflow._feed.arrays import find_leaf_columns, is_list, leaf_columns
from emberflow._feed.padding import PadTo
from emberflow._feed.shard_facts import UNSEEN, ColumnFacts, Length, widen
from emberflow._feed.shards import Shards
from emberflow._score.model_facts import Tensor
from emberflow.ml.model_columns import TrainingColumns, columns_of_inputs


def columns_to_pad(
    shards: Sequence[Shards], columns: TrainingColumns, inputs: Sequence[Tensor], pad_to: PadTo
) -> dict[str, PadTo]:
    """Return the feature columns to pad, each with its length.

    Arrays of different lengths are padded where the model takes any length, or a number says to which one: where the
    model takes one length only, other rows are more likely a mistake than short sequences.

    Args:
        shards: What is known of the rows, of each name.
        columns: The columns that are read.
        inputs: The model's inputs; none for a model that is built by its first batch.
        pad_to: What the user chose; "longest" becomes the length of the longest row of all.
    """
    pairs = (
        columns_of_inputs(columns, inputs)
        if inputs
        else [(name, Tensor(name=name)) for name in columns.features]
    )
    found: dict[str, PadTo] = {}
    for name, tensor in pairs:
        seen = _lengths(shards, name)
        if seen is not None and _is_padded(seen, tensor.shape[0] if tensor.shape else None, pad_to):
            found[name] = seen[1] if pad_to == "longest" else pad_to
    return found


def _lengths(shards: Sequence[Shards], name: str) -> Length | None:
    """Return the least and the greatest length of a column of arrays over all names; None for other columns."""
    seen = UNSEEN
    for each in shards:
        leaf = find_leaf_columns(list(leaf_columns(each.schema)), name)[0]
        if not is_list(leaf.type):
            return None
        lengths = each.columns.get(leaf.name, ColumnFacts()).lengths
        seen = widen(seen, lengths[0] if lengths else UNSEEN)
    return None if seen == UNSEEN else seen


def _is_padded(seen: Length, width: int | None, pad_to: PadTo) -> bool:
    """Tell whether arrays of these lengths are padded for an input of this first dimension, None for any."""
    least, most = seen
    if isinstance(pad_to, int):
        return width in (None, pad_to) and not least == most == pad_to
    return width is None and least != most
