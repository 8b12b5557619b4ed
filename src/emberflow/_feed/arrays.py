"""The shape of Arrow columns: leaves of structs, levels of lists, lengths. No function copies data."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from emberflow.errors import ConfigError

KEY = "__ef_key"
RESERVED = "__ef_"  # prefix of internal columns, which are never shown to the user

_VECTOR_FIELDS = ["type", "size", "indices", "values"]


@dataclass(frozen=True, kw_only=True)
class LeafColumn:
    """A column without fields of its own, from which a tensor is made; `path` leads to it through struct columns."""

    name: str
    type: Any
    path: tuple[str, ...]

    def array_in(self, batch: Any) -> Any:
        """Return this leaf's array in a record batch; leaves of a null struct are null."""
        array = batch.column(self.path[0])
        for step in self.path[1:]:
            index = array.type.get_field_index(step)
            array = array.flatten()[index] if array.null_count else array.field(index)
        return array


def leaf_columns(schema: Any) -> Iterator[LeafColumn]:
    """Yield the leaves of a schema: fields of a struct column are named ``column.field``."""
    for field in schema:
        if not field.name.startswith(RESERVED):
            yield from _leaves(field.type, (field.name,))


def _leaves(kind: Any, path: tuple[str, ...]) -> Iterator[LeafColumn]:
    if pa.types.is_struct(kind) and not is_vector(kind):
        for field in kind:
            yield from _leaves(field.type, (*path, field.name))
    else:
        yield LeafColumn(name=".".join(path), type=kind, path=path)


def find_leaf_columns(leaves: Sequence[LeafColumn], name: str) -> list[LeafColumn]:
    """Return the leaf of this name, or all leaves of the struct column of this name."""
    exact = [leaf for leaf in leaves if leaf.name == name]
    found = exact or [leaf for leaf in leaves if leaf.name.startswith(f"{name}.")]
    if not found or len(exact) > 1:
        raise ConfigError(
            f"Each column must be one of the data's columns. Received: {name!r}; "
            f"there are: {', '.join(leaf.name for leaf in leaves)}.",
            fix="Correct the name, or select the column before you pass the DataFrame."
            if not exact
            else "Rename one of the two columns: a field of a struct is named column.field.",
        )
    return found


def is_vector(kind: Any) -> bool:
    """Tell whether a type is the Arrow form of Spark ML's VectorUDT."""
    return pa.types.is_struct(kind) and [field.name for field in kind] == _VECTOR_FIELDS


def is_list(kind: Any) -> bool:
    """Tell whether a type is a list of any kind, maps excluded."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def is_text(kind: Any) -> bool:
    """Tell whether a type is a string of any kind."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_bytes(kind: Any) -> bool:
    """Tell whether a type is binary of any kind."""
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def list_levels(kind: Any) -> tuple[int, Any]:
    """Return the number of nested lists in a type, and the type inside them."""
    levels = 0
    while is_list(kind):
        levels, kind = levels + 1, kind.value_type
    return levels, kind


def normalized(array: Any) -> Any:
    """Return the array in the form that the rest of the feed reads: no dictionaries, no views."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return normalized(array.dictionary_decode())
    if pa.types.is_string_view(kind):
        return array.cast(pa.large_string())
    if pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return array.cast(pa.large_binary())
    return array


def without_views(batch: Any) -> Any:
    """Return the batch with view columns as plain ones: pyarrow cannot take rows of views."""
    fields = [
        field.with_type(pa.large_string() if pa.types.is_string_view(field.type) else pa.large_binary())
        if pa.types.is_string_view(field.type) or pa.types.is_binary_view(field.type)
        else field
        for field in batch.schema
    ]
    return batch if fields == list(batch.schema) else batch.cast(pa.schema(fields))


def offsets_of(array: Any) -> NDArray[Any]:
    """Return the offsets of a list, string or binary array into its values, `len(array) + 1` of them."""
    kind, rows, first = array.type, len(array), array.offset
    if pa.types.is_fixed_size_list(kind):
        return np.arange(first, first + rows + 1, dtype=np.int64) * np.int64(kind.list_size)
    large = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind) or pa.types.is_large_list(kind)
    dtype = np.dtype(np.int64 if large else np.int32)
    buffer = array.buffers()[1]
    if buffer is None or not rows:
        return np.zeros(rows + 1, np.int64)
    return np.frombuffer(buffer, dtype, rows + 1, first * dtype.itemsize)


def valid_rows(array: Any) -> NDArray[np.bool_] | None:
    """Return which rows are not null, or None when all are."""
    if not array.null_count:
        return None
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False), bool)


def word_view(array: Any) -> NDArray[Any]:
    """Return the values of a fixed-width array as numpy sees them: dates and times as integers."""
    if pa.types.is_temporal(array.type):
        array = array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64())
    dtype = array.type.to_pandas_dtype()
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(len(array), dtype)
    return np.frombuffer(buffer, dtype, len(array), array.offset * np.dtype(dtype).itemsize)
