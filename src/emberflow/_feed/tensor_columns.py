"""The tensor of each column: its dtype, its dense shape, its ragged levels. Decided once for all ranks.

====================  =====================================================================
Spark                 tensor
====================  =====================================================================
numbers, boolean      the same type
decimal               float64
date                  int32, days since 1970-01-01
timestamp, interval   int64, microseconds (timestamps since 1970-01-01 UTC; `time` since midnight)
string, binary        tf.string; binary with a declared dtype: numbers of that dtype
array of one length   one more dimension (also nested)
array of any length   tf.RaggedTensor, dense below the last level that varies; padded: dense
ML vector             float64, dense, one dimension
struct                one tensor per field, named ``column.field``
====================  =====================================================================
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from emberflow._feed.arrays import (
    LeafColumn,
    find_leaf_columns,
    is_bytes,
    is_vector,
    leaf_columns,
    list_levels,
)
from emberflow._feed.element_types import BYTES, element_type
from emberflow._feed.padding import Padding, PadOptions, check_padded
from emberflow._feed.shard_facts import UNSEEN, ColumnFacts, Length
from emberflow._feed.shards import Shards
from emberflow.errors import ConfigError, DataError

Shape = Sequence[int | None]


@dataclass(frozen=True, kw_only=True)
class Column:
    """How one leaf becomes a tensor.

    Attributes:
        leaf: Where it is in a record batch.
        dtype: Numpy's name of the tensor's dtype, or ``bytes`` for tf.string.
        lengths: Elements at each dense list level, as they are stored.
        shape: The dense dimensions of one row, below the ragged levels.
        ragged: How many list levels vary in length.
        decode: Whether binary values hold numbers of `dtype`.
        fill: The value in place of null, or None.
        padding: How the ragged levels become dense ones, or None if they stay ragged.
    """

    leaf: LeafColumn
    dtype: str
    lengths: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    ragged: int = 0
    decode: bool = False
    fill: Any = None
    padding: Padding | None = None

    @property
    def name(self) -> str:
        """The dotted name."""
        return self.leaf.name


@dataclass(frozen=True, kw_only=True)
class ColumnOptions:
    """What the user declares of columns, each by dotted name.

    Attributes:
        shapes: Dense dimensions of one row; None in front for a ragged one.
        dtypes: Dtype of the tensor; for binary columns the dtype of the numbers in them.
        null_value: The value in place of null.
        pad: How arrays of any length are padded.
    """

    shapes: Mapping[str, Shape] = field(default_factory=dict)
    dtypes: Mapping[str, Any] = field(default_factory=dict)
    null_value: Mapping[str, Any] = field(default_factory=dict)
    pad: PadOptions = field(default_factory=PadOptions)


def plan_columns(
    shards: Shards, column_options: ColumnOptions | None = None, names: Iterable[str] | None = None
) -> dict[str, Column]:
    """Return how each wanted column becomes a tensor, the same on every rank.

    Args:
        shards: What is known of the rows of all ranks.
        column_options: What the user declared.
        names: Columns or struct columns, by dotted name; None for all.
    """
    column_options = column_options or ColumnOptions()
    leaves = list(leaf_columns(shards.schema))
    wanted = leaves if names is None else [leaf for name in names for leaf in find_leaf_columns(leaves, name)]
    _check_known(leaves, column_options)
    plans: dict[str, Column] = {}
    for leaf in wanted:
        _check_nulls(leaf, shards, column_options)
        plans[leaf.name] = _plan(leaf, shards, column_options)
    return plans


def check_fit(column: Column, facts: ColumnFacts, rank: int) -> None:
    """Raise an error if rows with these facts do not fit the tensor that was planned before they arrived."""
    if (facts.nulls or facts.inner_nulls) and column.fill is None:
        raise DataError(
            f"Column {column.name!r} must have no nulls. "
            f"Received: {facts.nulls or facts.inner_nulls} nulls at rank {rank}.",
            fix=f'Drop or fill them in Spark, or pass null_value={{"{column.name}": 0}}.',
        )
    width = np.dtype(column.dtype).itemsize if column.decode else 1
    if column.padding is not None:
        check_padded(column.name, column.padding, _in_values(facts.lengths, width), rank)
    dense = facts.lengths[column.ragged : column.ragged + len(column.lengths)]
    for length, seen in zip(column.lengths, dense, strict=False):
        if seen not in (UNSEEN, (length * width, length * width)):
            raise _wrong_lengths(
                column.leaf,
                f"rows of shape {column.shape}, as the first rows did",
                facts.lengths,
                f'Declare shapes={{"{column.name}": (None,)}} for rows of any length.',
            )


def _check_known(leaves: Sequence[LeafColumn], column_options: ColumnOptions) -> None:
    known = {leaf.name for leaf in leaves}
    given = {
        "shapes": column_options.shapes,
        "dtypes": column_options.dtypes,
        "null_value": column_options.null_value,
        "pad_to": column_options.pad.pad_to,
    }
    for option, names in given.items():
        for name in names:
            if name not in known:
                raise ConfigError(
                    f"`{option}` must name columns of the data. Received: {option} for {name!r}; "
                    f"there are: {', '.join(sorted(known))}.",
                    fix=f"Correct the name in {option}=, or leave it out.",
                )


def _check_nulls(leaf: LeafColumn, shards: Shards, column_options: ColumnOptions) -> None:
    nulls = shards.nulls.get(leaf.name)
    if nulls is None or leaf.name in column_options.null_value:
        return
    found = []
    for rank, rows, inner in nulls.first:
        if rows:
            found.append(f"rank {rank}: {rows} of {shards.each[rank].rows} rows")
        if inner:
            found.append(f"rank {rank}: {inner} inside the rows' arrays")
    if nulls.ranks > len(nulls.first):
        found.append(f"{nulls.ranks - len(nulls.first)} more ranks")
    raise DataError(
        f"Column {leaf.name!r} must have no nulls. Received: nulls at {'; '.join(found)}.",
        fix=f'Drop or fill them in Spark, or pass null_value={{"{leaf.name}": 0}}.',
    )


def _plan(leaf: LeafColumn, shards: Shards, column_options: ColumnOptions) -> Column:
    facts = shards.columns.get(leaf.name, ColumnFacts())
    natural, inner = natural_dtype(leaf)
    declared = column_options.dtypes.get(leaf.name)
    decode = is_bytes(inner) and declared is not None and str(declared) not in {BYTES, "string"}
    dtype = _dtype_of(leaf, natural, declared, decode=decode)
    seen = _counts(leaf, facts, dtype) if decode else facts.lengths[: _levels(leaf)]
    lengths = [(0, 0) if length == UNSEEN else length for length in seen]
    ragged = max((level + 1 for level, (least, most) in enumerate(lengths) if least != most), default=0)
    ragged = max(ragged, column_options.pad.least_ragged(leaf.name, len(lengths)))
    if is_vector(leaf.type) and ragged and facts.sparse:
        raise _wrong_lengths(leaf, "vectors of one size", lengths, "Give all vectors of the column one size.")
    dense = tuple(least for least, _ in lengths[ragged:])
    if leaf.name in column_options.shapes:
        ragged, shape = _declared_shape(leaf, seen, ragged, column_options.shapes[leaf.name], decode=decode)
        dense = _stored_lengths(seen[ragged:], shape)
    else:
        shape = dense
    return Column(
        leaf=leaf,
        dtype=dtype,
        lengths=dense,
        shape=shape,
        ragged=ragged,
        decode=decode,
        fill=_fill(leaf, dtype, column_options) if leaf.name in column_options.null_value else None,
        padding=column_options.pad.padding_of(leaf.name, dtype, seen[:ragged], shards.spans.get(leaf.name)),
    )


def _levels(leaf: LeafColumn) -> int:
    return 1 if is_vector(leaf.type) else list_levels(leaf.type)[0]


def natural_dtype(leaf: LeafColumn) -> tuple[str, Any]:
    """Return the tensor's dtype when nothing is declared, and the type inside of all lists."""
    if is_vector(leaf.type):
        return "float64", pa.float64()
    inner = list_levels(leaf.type)[1]
    if pa.types.is_dictionary(inner):
        inner = inner.value_type
    found = element_type(inner)
    if found is not None:
        return found.dtype or str(np.dtype(inner.to_pandas_dtype()).name), inner
    raise DataError(
        f"Column {leaf.name!r} must have a type that a tensor can hold. Received: {leaf.type}.",
        fix="Turn it into columns or arrays of numbers or strings in Spark (map_keys, map_values, "
        "transform, cast), or leave it out with columns=.",
    )


def _dtype_of(leaf: LeafColumn, natural: str, declared: Any, *, decode: bool) -> str:
    if declared is None or (natural == BYTES and not decode and str(declared) in {BYTES, "string"}):
        return natural
    try:
        name = str(np.dtype(getattr(declared, "as_numpy_dtype", declared)).name)
    except TypeError:
        name = ""
    if np.dtype(name or "O").kind not in "biuf" or (natural == BYTES and not decode):
        raise ConfigError(
            f"`dtypes` must name a dtype that column {leaf.name!r} can become. "
            f"Received: {declared!r} for {leaf.type}.",
            fix=f'Pass dtypes={{"{leaf.name}": "float32"}} for numbers; leave it out for strings.',
        )
    return name


def _counts(leaf: LeafColumn, facts: ColumnFacts, dtype: str) -> tuple[Length, ...]:
    """Return the lengths of all levels, the last one in numbers instead of bytes."""
    if _levels(leaf):
        raise ConfigError(
            f"Only a plain binary column can be decoded. Received: {leaf.name!r} of type {leaf.type}.",
            fix="Put the bytes of one row into one binary value, or leave dtypes= out.",
        )
    width = np.dtype(dtype).itemsize
    if facts.lengths in ((), (UNSEEN,)):
        return (UNSEEN,)
    ((least, most),) = facts.lengths
    if least % width or most % width:
        raise _wrong_lengths(leaf, f"a multiple of {width} bytes", [(least, most)], "Correct dtypes=.")
    return ((least // width, most // width),)


def _declared_shape(
    leaf: LeafColumn, seen: Sequence[Length], ragged: int, declared: Shape, *, decode: bool
) -> tuple[int, tuple[int, ...]]:
    """Return the ragged levels and the dense shape that the user declared, if the rows allow it."""
    rows = next((level for level, size in enumerate(declared) if size is not None), len(declared))
    shape = tuple(size for size in declared[rows:] if size is not None)
    values = math.prod(shape)
    # All levels that vary must be declared as such; the levels below must hold as many values as declared.
    fits = rows + len(shape) == len(declared) and ragged <= rows <= len(seen)
    if decode and rows:
        fits = fits and not any(count % values for length in seen for count in length if length != UNSEEN)
    else:
        below = math.prod(least for least, _ in seen[rows:])
        fits = fits and (below == values or UNSEEN in seen[rows:])
    if not fits:
        raise _wrong_lengths(leaf, f"rows of shape {tuple(declared)}", seen, "Correct shapes=.")
    return rows, shape


def _in_values(lengths: Sequence[Length], width: int) -> list[Length]:
    """Return lengths in bytes as lengths in values of this width."""
    return [(least // width, most // width) if least <= most else UNSEEN for least, most in lengths]


def _stored_lengths(seen: Sequence[Length], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the lengths of dense levels; where all rows are null, those of the declared shape."""
    if UNSEEN not in seen:
        return tuple(least for least, _ in seen)
    return shape if len(shape) == len(seen) else (math.prod(shape), *(1 for _ in seen[1:]))


def _wrong_lengths(
    leaf: LeafColumn, expected: str, lengths: Sequence[tuple[int, int]], fix: str
) -> DataError:
    seen = ", ".join(_length_text(length) for length in lengths)
    return DataError(
        f"Column {leaf.name!r} must hold {expected}. Received: {leaf.type} with lengths [{seen}].", fix=fix
    )


def _length_text(length: Length) -> str:
    least, most = length
    return str(least) if least == most else "unknown" if length == UNSEEN else f"{least} to {most}"


def _fill(leaf: LeafColumn, dtype: str, column_options: ColumnOptions) -> Any:
    value = column_options.null_value[leaf.name]
    if dtype == BYTES:
        if isinstance(value, str | bytes):
            return value.encode() if isinstance(value, str) else value
    elif isinstance(value, int | float):
        return value
    raise ConfigError(
        "`null_value` must fit the column's type. "
        f"Received: {value!r} for {leaf.name!r} of type {leaf.type}.",
        fix=f'Pass a number for numbers and a string for strings: null_value={{"{leaf.name}": ...}}.',
    )
