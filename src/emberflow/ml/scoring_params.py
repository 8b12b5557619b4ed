"""The Params that are options of `ef.predict`: which columns go into a model, and which come out."""

from collections.abc import Callable, Mapping
from typing import Any, get_args

from pyspark.ml.param import Params, TypeConverters

from emberflow.config import check_count
from emberflow.errors import ConfigError
from emberflow.ml.params import NamedParams, declare, to_choice, to_count
from emberflow.predict import Errors

PREDICT_OPTIONS = {
    "inputs": "inputs",
    "outputs": "outputs",
    "signature": "signature",
    "tags": "tags",
    "keepCols": "keep",
    "errors": "errors",
    "errorCol": "error_column",
    "shapes": "shapes",
    "dtypes": "dtypes",
    "padTo": "pad_to",
    "padValue": "pad_value",
    "batchSize": "batch_size",
    "gpusPerTask": "gpus",
}


def predict_options(stage: Params) -> dict[str, Any]:
    """Return the options of `ef.predict` that the stage sets, by their name there."""
    return {
        option: stage.getOrDefault(name) for name, option in PREDICT_OPTIONS.items() if stage.isDefined(name)
    }


def to_inputs(value: Any) -> Any:
    """Accept a column, a list of columns, or the columns of each input by its name."""
    if isinstance(value, Mapping) and value and all(isinstance(name, str) for name in value):
        return {name: _columns(columns) for name, columns in value.items()}
    return _columns(value)


def _columns(value: Any) -> str | list[str]:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, list | tuple) and value and all(isinstance(name, str) for name in value):
        return list(value)
    raise ConfigError(
        f"`inputs` must name the columns of the model's inputs. Received: inputs={value!r}.",
        fix='Pass inputs={"image": "pixels"}, the column of each input, or inputs="pixels" for an only input.',
    )


def to_outputs(value: Any) -> Any:
    """Accept a column, a list of outputs, or the column of each output by its name, with its type or without."""
    if isinstance(value, str) and value:
        return value
    if isinstance(value, list | tuple) and value and all(isinstance(name, str) for name in value):
        return list(value)
    if isinstance(value, Mapping) and value:
        return {name: _output(name, column) for name, column in value.items()}
    raise _wrong_outputs(value)


def _output(name: Any, value: Any) -> str | tuple[str, str]:
    """Return the column of an output; a type is text, so that it can be saved, and files have no tuples."""
    if isinstance(name, str) and isinstance(value, str) and value:
        return value
    if isinstance(value, list | tuple) and len(value) == 2 and isinstance(value[0], str):
        column, kind = value
        return column, kind if isinstance(kind, str) else kind.simpleString()
    raise _wrong_outputs({name: value})


def _wrong_outputs(value: Any) -> ConfigError:
    return ConfigError(
        f"`outputs` must name the columns of the model's outputs. Received: outputs={value!r}.",
        fix='Pass outputs={"output_0": "scores"} or outputs={"output_0": ("scores", "array<double>")}, or '
        'outputs="scores" for an only output.',
    )


def by_column(name: str, example: str, accepts: Callable[[Any], bool]) -> Callable[[Any], dict[str, Any]]:
    """Return a converter that accepts one value for each column that is named."""

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping) or not all(
            isinstance(column, str) and accepts(each) for column, each in value.items()
        ):
            raise ConfigError(
                f"`{name}` must map columns to what holds for each. Received: {name}={value!r}.",
                fix=f"Pass {name}={example}.",
            )
        return {column: list(each) if isinstance(each, tuple) else each for column, each in value.items()}

    return convert


def _is_shape(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(size is None or isinstance(size, int) for size in value)


def _is_length(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def to_gpus(value: Any) -> int:
    """Accept a whole number, 0 or more."""
    check_count("gpusPerTask", value, least=0)
    return int(value)


class SignatureParams(NamedParams):
    """Which columns go into a SavedModel, and which come out; estimator and transformer have these."""

    inputs = declare(
        "inputs", 'the column of each input, {"image": "pixels"}, or of the only input', to_inputs
    )
    outputs = declare(
        "outputs", 'the column of each output, {"output_0": "scores"}, or of the only output', to_outputs
    )
    signature = declare("signature", "the SavedModel's signature", TypeConverters.toString)
    tags = declare("tags", "the SavedModel's tags", TypeConverters.toListString)
    keepCols = declare(
        "keepCols", "columns of the DataFrame to keep; all if not set", TypeConverters.toListString
    )
    errors = declare(
        "errors",
        'rows that do not fit: "raise" fails the job, "null" returns null, "keep" also adds the reason',
        to_choice("errors", get_args(Errors)),
    )
    errorCol = declare("errorCol", 'the column of reasons, for errors="keep"', TypeConverters.toString)
    shapes = declare(
        "shapes",
        "the shape of one row, by column, where the model does not fix it",
        by_column("shapes", '{"pixels": [28, 28]}', _is_shape),
    )
    dtypes = declare(
        "dtypes",
        "the dtype of the numbers in binary columns, by column",
        by_column("dtypes", '{"pixels": "uint8"}', lambda value: isinstance(value, str)),
    )
    padTo = declare(
        "padTo",
        "the length to which shorter arrays are padded, by column",
        by_column("padTo", '{"tokens": 100}', _is_length),
    )
    padValue = declare(
        "padValue",
        "what is added to them, by column; 0 or an empty string if not set",
        by_column("padValue", '{"tokens": 0}', lambda value: isinstance(value, str | int | float)),
    )


class ScoringParams(SignatureParams):
    """How a SavedModel scores; only the transformer has all of these."""

    batchSize = declare("batchSize", "rows in one call of the model", to_count("batchSize"))
    gpusPerTask = declare("gpusPerTask", "GPUs of each task that scores, its own", to_gpus)
