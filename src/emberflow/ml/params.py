"""The Params of estimator and model, with their setters and getters."""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, get_args

from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import (
    HasFeaturesCol,
    HasLabelCol,
    HasPredictionCol,
    HasProbabilityCol,
    HasRawPredictionCol,
    HasSeed,
    HasValidationIndicatorCol,
    HasWeightCol,
)

from emberflow._choices import WireDtype, check_choice
from emberflow._feed.padding import PadOptions
from emberflow._names import check_names, closest
from emberflow.config import check_count
from emberflow.errors import ConfigError, UnknownNameError
from emberflow.strategies.periodic.combiners import check_combiner

if TYPE_CHECKING:
    from pyspark.ml._typing import ParamMap

P = ParamSpec("P")
Stage = TypeVar("Stage", bound=type)


def with_accessors(cls: Stage) -> Stage:
    """Add `setX` and `getX` for each Param of the class that has none, as Spark ML's own stages have them."""
    for name in dir(cls):
        param = getattr(cls, name)
        if isinstance(param, Param):
            suffix = name[0].upper() + name[1:]
            _add(cls, f"set{suffix}", _setter(name), f"Set `{name}`: {param.doc}")
            _add(cls, f"get{suffix}", _getter(name), f"Return `{name}`: {param.doc}")
    return cls


def _add(cls: type, name: str, method: Callable[..., Any], doc: str) -> None:
    if not hasattr(cls, name):  # Spark's mixins bring getters, but no setters
        method.__name__, method.__qualname__, method.__doc__ = name, f"{cls.__qualname__}.{name}", doc
        setattr(cls, name, method)


def _setter(name: str) -> Callable[..., Any]:
    def set_(self: Params, value: Any) -> Params:
        return self._set(**{name: value})

    return set_


def _getter(name: str) -> Callable[..., Any]:
    def get(self: Params) -> Any:
        return self.getOrDefault(name)

    return get


def defaults_of(cls: type) -> dict[str, Any]:
    """Return the defaults in the signature of a stage, by Param; None means that the Param is not set."""
    signature = inspect.signature(cls)
    return {
        name: parameter.default
        for name, parameter in signature.parameters.items()
        if isinstance(getattr(cls, name, None), Param)
        and parameter.default not in (None, inspect.Parameter.empty)
    }


def arguments_kept(init: Callable[P, None]) -> Callable[P, None]:
    """Keep what is passed by name in `_input_kwargs`, like Spark's `keyword_only`, which refuses all by position."""

    @functools.wraps(init)
    def kept(*args: P.args, **kwargs: P.kwargs) -> None:
        stage: Any = args[0]
        stage._input_kwargs = kwargs  # noqa: SLF001 - as Spark names it
        init(*args, **kwargs)

    return kept


def declare(name: str, doc: str, converter: Callable[[Any], Any] | None = None) -> "Param[Any]":
    """Return a Param for the body of a class."""
    return Param(Params._dummy(), name, doc, typeConverter=converter)  # noqa: SLF001


def check_param_map(stage: Params, params: Mapping[Any, Any]) -> None:
    """Refuse keys that are no Params: Spark itself ignores them silently."""
    names = [param.name for param in stage.params]
    for key in params:
        if not isinstance(key, Param):
            meant = closest(str(key), names) or names[0]
            raise UnknownNameError(
                f"`params` must map Params of the stage to values. Received: {key!r}.",
                fix=f"Did you mean stage.{meant}? Pass {{stage.{meant}: {params[key]!r}}}.",
            )


def check_params(stage: Params, names: Iterable[str]) -> None:
    """Refuse names that are no Params of the stage."""
    known = [param.name for param in stage.params]
    check_names(names, known, lambda name: f"KerasEstimator has no Param of this name. Received: {name}.")


def to_share(value: Any) -> float:
    """Accept a number from 0 up to, but not including, 1."""
    share = TypeConverters.toFloat(value)
    if not 0 <= share < 1:
        raise ConfigError(
            f"`validationSplit` must be from 0 up to, but not including, 1. Received: validationSplit={value!r}.",
            fix="Pass validationSplit=0.1.",
        )
    return share


def to_choice(name: str, choices: Iterable[str]) -> Callable[[Any], str]:
    """Return a converter that accepts one of these names."""

    def convert(value: Any) -> str:
        check_choice(name, value, choices)
        return str(value)

    return convert


def to_count(name: str) -> Callable[[Any], int]:
    """Return a converter that accepts a whole number, 1 or more."""

    def convert(value: Any) -> int:
        check_count(name, value)
        return int(value)

    return convert


def to_pad_length(value: Any) -> Any:
    """Accept a length, "longest" or "batch"."""
    PadOptions(pad_to={"features": value})
    return value


def to_combiner(value: Any) -> Any:
    """Accept the name of a combiner, or a function."""
    check_combiner(value)
    return value


def to_keras_config(value: Any) -> Any:
    """Accept a name or a Keras object, which is serialised; a list of these for metrics."""
    if value is None or isinstance(value, str | dict):
        return value
    if isinstance(value, list | tuple):
        return [to_keras_config(each) for each in value]
    import keras

    return keras.saving.serialize_keras_object(value)


class NamedParams(Params):
    """Params that are passed by name: those that a stage does not have are refused, and None means not set."""

    def copy(self, extra: "ParamMap | None" = None) -> Self:
        """Return a copy with other values of some Params; ``fit(df, params)`` uses it."""
        check_param_map(self, extra or {})
        return super().copy(extra)

    def _set_passed(self, given: Mapping[str, Any]) -> Self:
        passed = {name: value for name, value in given.items() if value is not None}
        return self._set(**{name: value for name, value in passed.items() if self.hasParam(name)})


class ValidationParams(NamedParams, HasValidationIndicatorCol, HasSeed):
    """Which rows are held out of the training."""

    validationSplit = declare(
        "validationSplit", "share of the rows to validate on, selected by `seed`", to_share
    )


class ColumnParams(
    NamedParams, HasFeaturesCol, HasLabelCol, HasPredictionCol, HasRawPredictionCol, HasProbabilityCol
):
    """The Params that estimator and model share."""

    featuresCols = declare(
        "featuresCols",
        "several feature columns: one for each input of the model, or concatenated for its only input",
        TypeConverters.toListString,
    )
    labelCols = declare(
        "labelCols", "several label columns, one for each output of the model", TypeConverters.toListString
    )
    # Spark's HasBatchSize does not say of how many workers a batch is.
    batchSize = declare("batchSize", "rows in one step of one worker", TypeConverters.toInt)

    def feature_columns(self) -> list[str]:
        """Return all feature columns."""
        several = self.getOrDefault("featuresCols") if self.isDefined("featuresCols") else []
        return list(several) or [self.getOrDefault("featuresCol")]

    def label_columns(self) -> list[str]:
        """Return all label columns."""
        several = self.getOrDefault("labelCols") if self.isDefined("labelCols") else []
        return list(several) or [self.getOrDefault("labelCol")]


class TrainingParams(ColumnParams, HasWeightCol, ValidationParams):
    """What is trained, on which rows, and how often. Only the estimator has these."""

    epochs = declare("epochs", "passes over the rows", TypeConverters.toInt)
    shuffle = declare("shuffle", "whether each epoch has its own order", TypeConverters.toBoolean)
    exact = declare(
        "exact",
        'whether to refuse losses and metrics that would differ from one process, for "data_parallel"',
        TypeConverters.toBoolean,
    )
    wireDtype = declare(
        "wireDtype",
        'as what gradients travel between hosts: "float32", or "bfloat16" for half of the bytes, not exact',
        to_choice("wireDtype", get_args(WireDtype)),
    )
    loss = declare("loss", "a loss instead of the model's own: a name or a Keras object", to_keras_config)
    optimizer = declare("optimizer", "an optimizer instead of the model's own", to_keras_config)
    metrics = declare("metrics", "metrics instead of the model's own", to_keras_config)
    padTo = declare(
        "padTo", 'the length to pad arrays of any length to: a number, "longest" or "batch"', to_pad_length
    )
    padValue = declare("padValue", "what is added to them: a number, or text for text")
    syncInterval = declare(
        "syncInterval",
        'steps between two exchanges of a worker with the server, for "periodic"',
        to_count("syncInterval"),
    )
    combiner = declare(
        "combiner", 'how the server merges the update of a worker: "delta", "mean" or a function', to_combiner
    )
    checkpointSteps = declare(
        "checkpointSteps",
        "steps between checkpoints, in addition to one after each epoch",
        TypeConverters.toInt,
    )
