"""How columns become the model's inputs: dtypes, shapes, lengths; decided on the driver before any task runs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from emberflow._feed.arrays import LeafColumn, is_bytes, is_list, is_vector, leaf_columns, list_levels
from emberflow._feed.element_types import BYTES
from emberflow._feed.tensor_columns import natural_dtype
from emberflow._score.input_matching import Inputs, leaf_of, match_columns
from emberflow._score.model_facts import ModelFacts, Shape, Tensor, shape_text
from emberflow.config import check_count
from emberflow.errors import ConfigError, ModelError

NUMBERS = "biuf"


@dataclass(frozen=True, kw_only=True)
class InputColumn:
    """How one column is read.

    Attributes:
        leaf: Where it is in a record batch.
        stored: The dtype to read it as: that of the numbers in binary values, otherwise the input's.
        lengths: The length of each list level, None for any.
        decode: Whether binary values hold numbers of `stored`.
        limits: Smallest and largest value of the input's dtype, where the column may hold others.
        pad_to: The least length of a row's array; shorter ones are padded.
        pad_value: What is added to them.
    """

    leaf: LeafColumn
    stored: str
    lengths: Shape
    decode: bool = False
    limits: tuple[int, int] | None = None
    pad_to: int = 0
    pad_value: Any = 0


@dataclass(frozen=True, kw_only=True)
class InputPlan:
    """How one input of the model comes from columns; several are put side by side.

    Attributes:
        name: The model's name of it.
        dtype: The tensor's dtype.
        shape: Dimensions of one row; None for those of the data.
        ragged: How many list levels become ragged ones of a tf.RaggedTensor.
        columns: Where the values are.
    """

    name: str
    dtype: str
    shape: Shape
    columns: tuple[InputColumn, ...]
    ragged: int = 0


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """What the user declares of columns, by name.

    Attributes:
        shapes: The shape of a row.
        dtypes: The dtype of binary numbers.
        pad_to: The length to which shorter arrays are padded.
        pad_value: What is added to them.
    """

    shapes: Mapping[str, Sequence[int | None]]
    dtypes: Mapping[str, Any]
    pad_to: Mapping[str, int] = field(default_factory=dict)
    pad_value: Mapping[str, Any] = field(default_factory=dict)


def plan_inputs(
    schema: Any, model: ModelFacts, inputs: Inputs, input_options: InputOptions
) -> tuple[InputPlan, ...]:
    """Return how each input of the model comes from the columns of an Arrow schema."""
    leaves = list(leaf_columns(schema))
    chosen = match_columns(leaves, model, inputs)
    used = {name for names in chosen.values() for name in names}
    for option in ("shapes", "dtypes", "pad_to", "pad_value"):
        for name in getattr(input_options, option):
            if name not in used:
                raise ConfigError(
                    f"`{option}` must name input columns of the model. Received: {option} for {name!r}; "
                    f"its inputs use: {', '.join(sorted(used))}.",
                    fix=f"Correct the name in {option}=, or leave it out.",
                )
    tensors = {tensor.name: tensor for tensor in model.inputs}
    return tuple(
        _plan(
            tensors.get(name, Tensor(name=name)),
            [leaf_of(leaves, column) for column in columns],
            input_options,
        )
        for name, columns in chosen.items()
    )


def _plan(tensor: Tensor, leaves: Sequence[LeafColumn], input_options: InputOptions) -> InputPlan:
    if tensor.dtype is not None and not _is_known(tensor.dtype):
        raise ModelError(
            f"The model's input {tensor.name!r} must be a tensor of numbers or strings. Received: {tensor.dtype}.",
            fix="Export a signature whose inputs are such tensors, and convert them inside it.",
        )
    if not tensor.has_rows:
        raise ModelError(
            f"The model's input {tensor.name!r} must have a first dimension of rows. Received: a scalar.",
            fix="Export a signature whose inputs are batches.",
        )
    if len(leaves) > 1:
        return _side_by_side(tensor, leaves, input_options)
    leaf = leaves[0]
    dtype, stored, decode = _dtypes(tensor, leaf, input_options.dtypes.get(leaf.name))
    levels = 1 if decode or is_vector(leaf.type) else list_levels(leaf.type)[0]
    shape = _row_shape(tensor, leaf, levels, input_options.shapes.get(leaf.name))
    if tensor.is_ragged:
        ragged = max((at + 1 for at, size in enumerate(shape) if size is None), default=0)
        lengths = _lengths(tensor, leaf, levels, shape)
        column = InputColumn(leaf=leaf, stored=stored, lengths=lengths, limits=_limits(leaf, dtype))
        return InputPlan(
            name=tensor.name, dtype=dtype, shape=shape[ragged:], columns=(column,), ragged=ragged
        )
    column = InputColumn(
        leaf=leaf,
        stored=stored,
        lengths=_lengths(tensor, leaf, levels, shape),
        decode=decode,
        limits=None if decode else _limits(leaf, dtype),
        **_padding(leaf, dtype, input_options),
    )
    return InputPlan(name=tensor.name, dtype=dtype, shape=shape, columns=(column,))


def _padding(leaf: LeafColumn, dtype: str, input_options: InputOptions) -> dict[str, Any]:
    """Return to which length a column of arrays is padded, and with what."""
    if leaf.name not in input_options.pad_to:
        return {}
    check_count("pad_to", input_options.pad_to[leaf.name])
    if not is_list(leaf.type):
        raise ConfigError(
            f"`pad_to` is for columns of arrays. Received: pad_to for {leaf.name!r} of type {leaf.type}.",
            fix="Leave it out.",
        )
    value = input_options.pad_value.get(leaf.name, "" if dtype == BYTES else 0)
    return {
        "pad_to": input_options.pad_to[leaf.name],
        "pad_value": value.encode() if isinstance(value, str) else value,
    }


def _side_by_side(tensor: Tensor, leaves: Sequence[LeafColumn], input_options: InputOptions) -> InputPlan:
    """Plan an input of one dimension whose values are those of several columns, one after the other."""
    if tensor.shape is not None and len(tensor.shape) != 1:
        raise ConfigError(
            f"Several columns can be put side by side for an input of one dimension only. Received: {len(leaves)} "
            f"columns for {tensor}.",
            fix="Put the values into one array column in Spark.",
        )
    columns, dtype = [], ""
    for leaf in leaves:
        dtype, stored, decode = _dtypes(tensor, leaf, input_options.dtypes.get(leaf.name))
        levels = 1 if decode or is_vector(leaf.type) else list_levels(leaf.type)[0]
        given = input_options.shapes.get(leaf.name)
        lengths: Shape = (
            (None,) * levels if given is None else (math.prod(size or 0 for size in given),) * bool(levels)
        )
        limits = None if decode else _limits(leaf, dtype)
        columns.append(InputColumn(leaf=leaf, stored=stored, lengths=lengths, decode=decode, limits=limits))
    size = tensor.shape[0] if tensor.shape else None
    return InputPlan(name=tensor.name, dtype=dtype, shape=(size,), columns=_fitted(tensor, columns, size))


def _fitted(tensor: Tensor, columns: list[InputColumn], size: int | None) -> tuple[InputColumn, ...]:
    """Return the columns with the one undeclared length, which follows from the others."""
    open_ones = [column for column in columns if None in column.lengths or len(column.lengths) > 1]
    known = sum(column.lengths[0] or 0 if column.lengths else 1 for column in columns)
    rest = None if size is None else size - known
    if (
        len(open_ones) > 1
        or (open_ones and rest is None)
        or (rest is not None and (rest > 0) != bool(open_ones))
    ):
        raise ConfigError(
            f"The columns of one input must have as many values as the input. Input: {tensor}. Received: "
            f"{', '.join(f'{column.leaf.name} ({column.leaf.type})' for column in columns)}.",
            fix="Name as many columns as the input has values; declare the length of arrays: "
            'shapes={"column": (3,)}.',
        )
    return tuple(
        InputColumn(
            leaf=column.leaf,
            stored=column.stored,
            lengths=(rest,),
            decode=column.decode,
            limits=column.limits,
        )
        if column in open_ones
        else column
        for column in columns
    )


def _is_known(dtype: str) -> bool:
    if dtype in {BYTES, "bfloat16"}:
        return True
    try:
        return np.dtype(dtype).kind in NUMBERS
    except TypeError:
        return False


def _dtypes(tensor: Tensor, leaf: LeafColumn, given: Any) -> tuple[str, str, bool]:
    """Return the dtype of the tensor, the one to read the column as, and whether binary values hold numbers."""
    natural, inner = natural_dtype(leaf)
    declared = None if given is None else _declared_dtype(leaf, given)
    target = tensor.dtype or (declared if declared is not None else natural)
    if natural == BYTES and target != BYTES and is_bytes(inner) and not list_levels(leaf.type)[0]:
        return target, declared or _in_numpy(target), True
    if not _can_become(natural, target):
        raise ConfigError(
            f"Column {leaf.name!r} must have a type that fits the model's input {tensor}. Received: {leaf.type}.",
            fix=f'Cast it in Spark: df.withColumn("{leaf.name}", ...cast(...)).',
        )
    return target, _in_numpy(target), False


def _declared_dtype(leaf: LeafColumn, given: Any) -> str:
    try:
        dtype = np.dtype(getattr(given, "as_numpy_dtype", given))
    except TypeError:
        dtype = np.dtype("O")
    if dtype.kind not in NUMBERS:
        raise ConfigError(
            f"`dtypes` must name a dtype of numbers. Received: {given!r} for {leaf.name!r}.",
            fix=f'Pass dtypes={{"{leaf.name}": "uint8"}} for binary values that hold bytes.',
        )
    return str(dtype.name)


def _in_numpy(dtype: str) -> str:
    return "float32" if dtype == "bfloat16" else dtype


def _can_become(natural: str, target: str) -> bool:
    """Tell whether values may be passed as another dtype; fractions are never truncated silently."""
    if BYTES in (natural, target):
        return natural == target
    kind, wanted = np.dtype(natural).kind, np.dtype(_in_numpy(target)).kind
    return wanted == "f" or kind == wanted == "b" or (kind in "biu" and wanted in "iu")


def _limits(leaf: LeafColumn, target: str) -> tuple[int, int] | None:
    """Return the range of the target's dtype, if the column may exceed it."""
    natural = natural_dtype(leaf)[0]
    if BYTES in (natural, target) or np.dtype(_in_numpy(target)).kind not in "iu":
        return None
    if np.dtype(natural).kind == "b" or np.can_cast(natural, target, "safe"):
        return None
    bounds = np.iinfo(target)
    return int(bounds.min), int(bounds.max)


def _row_shape(tensor: Tensor, leaf: LeafColumn, levels: int, given: Sequence[int | None] | None) -> Shape:
    """Return the shape of one row: the model's, completed by what the user declared."""
    if tensor.shape is None:
        return (None,) * levels if given is None else tuple(given)
    if given is None:
        return tensor.shape
    declared = tuple(given)
    fits = len(declared) == len(tensor.shape) and all(
        size is None or size == given for size, given in zip(tensor.shape, declared, strict=True)
    )
    if not fits:
        raise ConfigError(
            f"`shapes` must agree with the model. Input: {tensor}. "
            f"Received: {shape_text(declared)} for {leaf.name!r}.",
            fix=f'Leave shapes={{"{leaf.name}": ...}} out, or pass the model\'s own shape.',
        )
    return declared


def _lengths(tensor: Tensor, leaf: LeafColumn, levels: int, shape: Shape) -> Shape:
    """Return what each list level of the column must hold so that a row has this shape."""
    if levels == len(shape):
        return shape
    if None not in shape:
        sizes = [size or 0 for size in shape]
        if levels == 1:
            return (math.prod(sizes),)
        wide = tuple(size for size in sizes if size != 1)
        if levels == len(wide):
            return wide
    raise ConfigError(
        f"Column {leaf.name!r} must have rows of shape {shape_text(shape)} for the model's input {tensor}. Received: "
        f"{leaf.type}.",
        fix=f'Make it an array of that many dimensions in Spark, or declare shapes={{"{leaf.name}": (...)}} '
        "for a flat array.",
    )
