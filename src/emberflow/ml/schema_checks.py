"""What the schema of a DataFrame tells of a training that cannot work, before anything starts."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from emberflow._choices import STRATEGIES
from emberflow._feed.element_types import BYTES
from emberflow._names import closest
from emberflow._score.model_facts import Tensor
from emberflow.errors import ConfigError, DataError
from emberflow.ml.model_columns import TrainingColumns, columns_of_inputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NO_NUMBERS = ("string", "binary", "varchar", "char", "map<", "variant")


def check_columns(
    dataset: "DataFrame",
    *,
    features: Sequence[str],
    labels: Sequence[str],
    weight: str | None,
    indicator: str | None,
) -> None:
    """Refuse columns that are missing, and labels, weights or an indicator of a type that cannot be one."""
    wanted = [*features, *labels, *(name for name in (weight, indicator) if name)]
    check_present(dataset.columns, wanted, "featuresCol, labelCol and weightCol")
    kinds = dict(dataset.dtypes)
    for label in labels:
        if _holds(kinds[label], NO_NUMBERS):
            raise DataError(
                f"A label column must hold numbers. Received: {label!r} of type {kinds[label]}.",
                fix=f'Index it: StringIndexer(inputCol="{label}", outputCol="{label}Index").fit(df).transform(df), '
                f'and pass labelCol="{label}Index".',
            )
    if weight and (_holds(kinds[weight], NO_NUMBERS) or "<" in kinds[weight]):
        raise DataError(
            f"A weight column must hold one number in each row. Received: {weight!r} of type {kinds[weight]}.",
            fix=f'Cast it: df.withColumn("{weight}", df["{weight}"].cast("float")).',
        )
    if indicator:
        check_indicator(dataset, indicator)


def check_indicator(dataset: "DataFrame", indicator: str) -> None:
    """Refuse an indicator of another type than boolean."""
    kind = dict(dataset.dtypes)[indicator]
    if kind != "boolean":
        raise DataError(
            f"A validation indicator column must be boolean. Received: {indicator!r} of type {kind}.",
            fix=f'Cast it: df.withColumn("{indicator}", df["{indicator}"].cast("boolean")).',
        )


def check_evaluation(options: Mapping[str, Any]) -> None:
    """Refuse an evaluator that would find no checkpoints; `options` are those of `ef.run`."""
    strategy = options["strategy"]
    if not options.get("checkpoint_dir") or STRATEGIES[strategy].is_asynchronous:
        folder = options.get("checkpoint_dir")
        raise ConfigError(
            "An evaluator evaluates the checkpoints of a synchronous training. "
            f"Received: checkpointDir={folder!r}, strategy={strategy!r}.",
            fix='Pass checkpointDir="hdfs:///..." and strategy="data_parallel", or leave evaluation out.',
        )


def check_inputs(schema: Any, columns: TrainingColumns, inputs: Sequence[Tensor]) -> None:
    """Refuse text for an input of numbers, and vectors whose size Spark knows to be another than the model's."""
    for name, tensor in columns_of_inputs(columns, inputs):
        field = schema[name]
        check_text(name, field.dataType.simpleString(), tensor)
        size = field.metadata.get("ml_attr", {}).get("num_attrs")
        if size is not None and width_of(tensor) not in (None, size):
            raise wrong_width(name, tensor, f"vectors of size {size}", size)


def check_text(name: str, kind: str, tensor: Tensor) -> None:
    """Refuse a column of text for an input of numbers."""
    if tensor.dtype != BYTES and _holds(kind, ("string", "varchar", "char")):
        raise DataError(
            f"Column {name!r} must hold numbers for input {tensor.name!r} of the model, which takes {tensor.dtype}. "
            f"Received: {kind}.",
            fix=f'Index the text: StringIndexer(inputCol="{name}", outputCol="{name}Index"). Or give the model an '
            'input of text: keras.Input(shape=(), dtype="string") with a TextVectorization or StringLookup layer.',
        )


def width_of(tensor: Tensor) -> int | None:
    """Return how many values one row of an input has; None where the model takes any number."""
    shape = [size for size in tensor.shape or () if size is not None]
    return math.prod(shape) if shape and len(shape) == len(tensor.shape or ()) else None


def wrong_width(name: str, tensor: Tensor, received: str, width: int | None) -> DataError:
    """Return the error for rows of another width than the model's input."""
    change = f"Give the model keras.Input(shape=({width},)), or s" if width else "S"
    pad = "" if width else f", or pad arrays of different lengths: padTo={(tensor.shape or (None,))[0]}"
    return DataError(
        f"Column {name!r} must hold {width_of(tensor)} values in each row: input {tensor.name!r} of the model has "
        f"the shape {tensor.shape}. Received: {received}.",
        fix=f"{change}elect other columns (VectorAssembler's inputCols, featuresCol){pad}.",
    )


def check_present(columns: Sequence[str], wanted: Sequence[str], params: str) -> None:
    """Refuse columns that the DataFrame does not have; `params` are those that name them."""
    missing = [name for name in wanted if name not in columns]
    if missing:
        meant = closest(missing[0], columns)
        raise ConfigError(
            f"The DataFrame must have the columns {list(wanted)}. Received: {columns}, without {missing}.",
            fix=(f"Did you mean {meant!r}? " if meant else "") + f"Set {params} to columns of the DataFrame.",
        )


def _holds(kind: str, words: Iterable[str]) -> bool:
    """Tell whether a type is one of these, or an array of it.

    >>> _holds("array<array<string>>", ["string"]), _holds("struct<a:string>", ["string"])
    (True, False)
    """
    while kind.startswith("array<"):
        kind = kind.removeprefix("array<")
    return kind.startswith(tuple(words))
