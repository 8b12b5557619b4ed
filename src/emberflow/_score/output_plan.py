"""The columns of the model's outputs, and numpy arrays as Arrow arrays of their types."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from emberflow._driver.spark_versions import parse_schema
from emberflow._feed.arrays import is_list, is_text, list_levels
from emberflow._feed.element_types import BYTES
from emberflow._score.model_facts import ModelFacts, Tensor
from emberflow.errors import ConfigError, DataError, ModelError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

DEFAULT_COLUMN = "prediction"  # the default of Spark ML's evaluators
_SPARK_TYPES = {
    BYTES: "string",
    "bool": "boolean",
    "int8": "tinyint",
    "uint8": "smallint",
    "int16": "smallint",
    "uint16": "int",
    "int32": "int",
    "uint32": "bigint",
    "int64": "bigint",
    "uint64": "decimal(20,0)",
    "bfloat16": "float",
    "float16": "float",
    "float32": "float",
    "float64": "double",
}


@dataclass(frozen=True, kw_only=True)
class OutputPlan:
    """One output of the model, and the column it becomes: its name and its Arrow type."""

    name: str
    column: str
    type: Any
    index: int = 0


@dataclass(frozen=True, kw_only=True)
class OutputChoice:
    """The user's choice for one output; `type` is Spark's, or None for the model's own."""

    name: str
    column: str
    type: "DataType | str | None" = None


def choose_outputs(model: ModelFacts, outputs: Any) -> list[OutputChoice]:
    """Return the chosen outputs and the names of their columns."""
    names = [tensor.name for tensor in model.outputs]
    if model.kind == "function":
        return _declared(outputs)
    if outputs is None:
        return [OutputChoice(name=name, column=name if len(names) > 1 else DEFAULT_COLUMN) for name in names]
    if isinstance(outputs, str):
        if len(names) != 1:
            raise _unknown_output(model, f"outputs={outputs!r}")
        return [OutputChoice(name=names[0], column=outputs)]
    if isinstance(outputs, Mapping):
        return [_output_choice(_known(model, name), value) for name, value in outputs.items()]
    return [OutputChoice(name=_known(model, name), column=name) for name in outputs]


def _declared(outputs: Any) -> list[OutputChoice]:
    """Return the columns of a function, whose types only the user knows."""
    from pyspark.sql.types import StructType

    if isinstance(outputs, str):
        outputs = parse_schema(outputs)
    if isinstance(outputs, StructType):
        return [OutputChoice(name=field.name, column=field.name, type=field.dataType) for field in outputs]
    if isinstance(outputs, Mapping):
        choice = [_output_choice(name, value) for name, value in outputs.items()]
        if choice and all(one.type is not None for one in choice):
            return choice
    raise ConfigError(
        f"The output columns of a function must be declared with their types. Received: outputs={outputs!r}.",
        fix='Pass outputs="scores array<float>", or outputs={"output": ("scores", "array<float>")}.',
    )


def _output_choice(name: str, value: Any) -> OutputChoice:
    if isinstance(value, str):
        return OutputChoice(name=name, column=value)
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
        return OutputChoice(name=name, column=value[0], type=value[1])
    raise ConfigError(
        f"`outputs` must name a column, or a column and its type. Received: {name!r}: {value!r}.",
        fix=f'Pass outputs={{"{name}": "scores"}} or outputs={{"{name}": ("scores", "array<float>")}}.',
    )


def _known(model: ModelFacts, name: str) -> str:
    """Return the model's own name of an output; ``output_0`` and so on always name them by position."""
    names = [tensor.name for tensor in model.outputs]
    if name in names:
        return name
    places = {f"output_{place}": own for place, own in enumerate(names)}
    if model.kind == "keras" and name in places:
        return places[name]
    raise _unknown_output(model, f"outputs for {name!r}")


def _unknown_output(model: ModelFacts, received: str) -> ConfigError:
    example = ", ".join(f'"{tensor.name}": "column_{place}"' for place, tensor in enumerate(model.outputs))
    return ConfigError(
        f"`outputs` must name outputs of the model. Outputs: {', '.join(map(str, model.outputs))}. "
        f"Received: {received}.",
        fix=f"Pass outputs={{{example}}}.",
    )


def spark_type(model: ModelFacts, choice: OutputChoice) -> "DataType":
    """Return the Spark type of an output's column: the declared one, or the model's."""
    from pyspark.sql.types import DataType

    tensor = next(
        (tensor for tensor in model.outputs if tensor.name == choice.name), Tensor(name=choice.name)
    )
    if choice.type is not None:
        return choice.type if isinstance(choice.type, DataType) else parse_schema(choice.type)
    if not tensor.has_rows:
        raise ModelError(
            f"The model's output {tensor.name!r} must have a first dimension of rows. Received: a scalar.",
            fix="Leave it out with outputs=, or export a signature that returns one value per row.",
        )
    if tensor.shape is None or tensor.dtype not in _SPARK_TYPES:
        raise ModelError(
            f"The type of the model's output {tensor} is unknown. Received: {choice.name!r} without a type.",
            fix=f'Declare it: outputs={{"{choice.name}": ("{choice.column}", "array<float>")}}.',
        )
    ddl = _SPARK_TYPES[tensor.dtype]
    for _ in tensor.shape:
        ddl = f"array<{ddl}>"
    return parse_schema(ddl)


def check_type(model: ModelFacts, choice: OutputChoice, kind: Any) -> None:
    """Reject a declared type that the model's output cannot become."""
    tensor = next((tensor for tensor in model.outputs if tensor.name == choice.name), None)
    if choice.type is None or tensor is None or tensor.shape is None or tensor.dtype not in _SPARK_TYPES:
        return
    levels, inner = list_levels(kind)
    wide = [size for size in tensor.shape if size != 1]
    fits = len(wide) <= levels <= len(tensor.shape) or (levels == 1 and None not in tensor.shape)
    if fits and _can_hold(inner, tensor.dtype):
        return
    raise ConfigError(
        f"The type of column {choice.column!r} must fit the model's output {tensor}. Received: {choice.type}.",
        fix="Leave the type out to get the model's own, and cast the column in Spark.",
    )


def _can_hold(inner: Any, dtype: str) -> bool:
    if dtype == BYTES or _is_string(inner):
        return dtype == BYTES and _is_string(inner)
    if pa.types.is_decimal(inner):
        return dtype == "uint64"
    source = np.dtype("float32" if dtype == "bfloat16" else dtype)
    try:
        return bool(np.can_cast(source, inner.to_pandas_dtype(), "same_kind"))
    except (NotImplementedError, TypeError):
        return False


def _is_string(kind: Any) -> bool:
    return bool(is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def arrow_of(plan: OutputPlan, value: Any, rows: int) -> Any:
    """Return the model's value of an output as an Arrow array of the planned type."""
    if hasattr(value, "nested_row_splits"):
        return _from_ragged(plan, value, rows)
    array = np.asarray(value)
    levels, inner = list_levels(plan.type)
    if array.ndim == 0 or len(array) != rows:
        raise ModelError(
            f"The model's output {plan.name!r} must have one value per row. "
            f"Received: shape {array.shape} for {rows} rows.",
            fix="Leave it out with outputs=, or let the model keep the first dimension.",
        )
    sizes = _sizes(plan, array.shape[1:], levels)
    return _lists(plan.type, _flat(plan, np.ascontiguousarray(array).reshape(-1), inner), (rows, *sizes))


def _sizes(plan: OutputPlan, shape: Sequence[int], levels: int) -> tuple[int, ...]:
    if len(shape) == levels:
        return tuple(shape)
    wide = tuple(size for size in shape if size != 1)
    if len(wide) == levels:
        return wide
    if levels == 1:
        return (math.prod(shape),)
    raise ModelError(
        f"Column {plan.column!r} is declared as {plan.type}, with {levels} dimensions per row. Received: rows of "
        f"shape {tuple(shape)} from the model's output {plan.name!r}.",
        fix="Declare an array type with as many dimensions.",
    )


def _lists(kind: Any, values: Any, shape: Sequence[int]) -> Any:
    """Wrap flat values into lists of fixed sizes."""
    if not is_list(kind):
        return values
    inside = _lists(kind.value_type, values, (shape[0] * shape[1], *shape[2:]))
    offsets = np.arange(0, shape[0] + 1, dtype=np.int32 if pa.types.is_list(kind) else np.int64) * shape[1]
    lists = pa.ListArray if pa.types.is_list(kind) else pa.LargeListArray
    return lists.from_arrays(pa.array(offsets), inside, type=kind)


def _from_ragged(plan: OutputPlan, value: Any, rows: int) -> Any:
    splits = [np.asarray(level) for level in value.nested_row_splits]
    flat = np.asarray(value.flat_values)
    levels, inner = list_levels(plan.type)
    if len(splits) + flat.ndim - 1 != levels or len(splits[0]) != rows + 1:
        _sizes(plan, (0,) * (len(splits) + flat.ndim - 1), levels)
    kinds = [plan.type]
    while is_list(kinds[-1].value_type):
        kinds.append(kinds[-1].value_type)
    below = kinds[len(splits)] if len(splits) < len(kinds) else inner
    array = _lists(below, _flat(plan, flat.reshape(-1), inner), flat.shape)
    for kind, offsets in zip(reversed(kinds[: len(splits)]), reversed(splits), strict=True):
        lists = pa.ListArray if pa.types.is_list(kind) else pa.LargeListArray
        array = lists.from_arrays(pa.array(offsets.astype(np.int32)), array, type=kind)
    return array


def _flat(plan: OutputPlan, flat: Any, inner: Any) -> Any:
    """Return flat values as an Arrow array of the type inside of all lists."""
    try:
        if flat.dtype.kind in "OSU":
            strings = pa.array(flat.tolist() if flat.dtype.kind != "O" else flat)
            return strings if strings.type == inner else strings.cast(inner)
        if str(flat.dtype) == "bfloat16":
            flat = flat.astype(np.float32)
        if pa.types.is_decimal(inner) or _is_string(inner):
            return pa.array(flat).cast(inner)
        wanted = np.dtype(inner.to_pandas_dtype())
        if not np.can_cast(flat.dtype, wanted, "same_kind"):
            raise TypeError(f"{flat.dtype} values")
        return pa.array(flat.astype(wanted, copy=False), inner)
    except (pa.ArrowException, TypeError) as error:
        raise DataError(
            f"Column {plan.column!r} is declared as {plan.type}. "
            f"Received from the model's output {plan.name!r}: {error}.",
            fix="Declare the type that the output has: "
            f'outputs={{"{plan.name}": ("{plan.column}", "binary")}} for strings that are not UTF-8.',
        ) from error
