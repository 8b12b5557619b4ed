"""The Params that estimator and model share, with their setters and getters."""

from collections.abc import Callable
from typing import Any, TypeVar

from pyspark.ml.param import Param, Params, TypeConverters

from emberflow.config import STRATEGIES, check_count
from emberflow.errors import ConfigError
from emberflow.strategies.combiners import check_combiner

Stage = TypeVar("Stage", bound=type)


def with_accessors(cls: Stage) -> Stage:
    """Give a class `setX` and `getX` for each of its Params, as Spark ML's own stages have them."""
    for name in dir(cls):
        param = getattr(cls, name)
        if isinstance(param, Param):
            suffix = name[0].upper() + name[1:]
            _add(cls, f"set{suffix}", _setter(name), f"Set `{name}`: {param.doc}")
            _add(cls, f"get{suffix}", _getter(name), f"Return `{name}`: {param.doc}")
    return cls


def _add(cls: type, name: str, method: Callable[..., Any], doc: str) -> None:
    if name not in vars(cls):
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


def to_workers(value: Any) -> int | str:
    """Take a whole number or "auto"."""
    check_count("numWorkers", value, auto="to take every slot Spark offers")
    return value  # type: ignore[no-any-return]


def to_share(value: Any) -> float:
    """Take a number from 0 up to, but not including, 1."""
    share = TypeConverters.toFloat(value)
    if not 0 <= share < 1:
        raise ConfigError(
            f"`validationSplit` must be from 0 up to, but not including, 1. Received: {value!r}.",
            fix="Pass validationSplit=0.1.",
        )
    return share


def to_strategy(value: Any) -> str:
    """Take the name of a strategy."""
    if value not in STRATEGIES:
        raise ConfigError(
            f"`strategy` must be one of {', '.join(STRATEGIES)}. Received: strategy={value!r}.",
            fix='Leave it out for synchronous training, or pass strategy="periodic".',
        )
    return str(value)


def to_combiner(value: Any) -> Any:
    """Take "mean", "delta" or a function."""
    check_combiner(value)
    return value


def to_count(name: str) -> Callable[[Any], int]:
    """Return what takes a whole number from 1 on."""

    def convert(value: Any) -> int:
        check_count(name, value)
        return int(value)

    return convert


def to_keras_config(value: Any) -> Any:
    """Take a name, or a Keras object, which becomes its serialised form; a list of these for metrics."""
    if value is None or isinstance(value, str | dict):
        return value
    if isinstance(value, list | tuple):
        return [to_keras_config(each) for each in value]
    import keras

    return keras.saving.serialize_keras_object(value)


def declare(name: str, doc: str, converter: Callable[[Any], Any] | None = None) -> "Param[Any]":
    """Return a Param for the body of a class."""
    return Param(Params._dummy(), name, doc, typeConverter=converter)  # noqa: SLF001


class ColumnParams(Params):
    """Columns that both stages know."""

    featuresCol = declare("featuresCol", "the column of features", TypeConverters.toString)
    featuresCols = declare(
        "featuresCols",
        "several columns of features: one for each input of the model, or put side by side for its only input",
        TypeConverters.toListString,
    )
    labelCol = declare("labelCol", "the column of labels", TypeConverters.toString)
    labelCols = declare(
        "labelCols",
        "several columns of labels, one for each output of the model",
        TypeConverters.toListString,
    )
    predictionCol = declare(
        "predictionCol", "the column of predictions, a double: class index or value", TypeConverters.toString
    )
    rawPredictionCol = declare(
        "rawPredictionCol", "the column of the model's output", TypeConverters.toString
    )
    probabilityCol = declare(
        "probabilityCol",
        "the column of class probabilities, where the output is one",
        TypeConverters.toString,
    )
    batchSize = declare("batchSize", "rows in one step of one worker", TypeConverters.toInt)

    def feature_columns(self) -> list[str]:
        """Return all columns of features."""
        several = self.getOrDefault("featuresCols") if self.isDefined("featuresCols") else []
        return list(several) or [self.getOrDefault("featuresCol")]

    def label_columns(self) -> list[str]:
        """Return all columns of labels."""
        several = self.getOrDefault("labelCols") if self.isDefined("labelCols") else []
        return list(several) or [self.getOrDefault("labelCol")]


COLUMN_DEFAULTS = {
    "featuresCol": "features",
    "labelCol": "label",
    "predictionCol": "prediction",
    "rawPredictionCol": "rawPrediction",
    "probabilityCol": "probability",
    "batchSize": 32,
}


class TrainingParams(ColumnParams):
    """What only the estimator takes."""

    weightCol = declare("weightCol", "the column of sample weights", TypeConverters.toString)
    validationIndicatorCol = declare(
        "validationIndicatorCol",
        "a boolean column: true for rows to validate on; rows with null are trained on",
        TypeConverters.toString,
    )
    validationSplit = declare(
        "validationSplit", "share of the rows to validate on, chosen by `seed`", to_share
    )
    epochs = declare("epochs", "passes over the rows", TypeConverters.toInt)
    numWorkers = declare("numWorkers", 'nodes that train together, or "auto" for every slot', to_workers)
    gpusPerWorker = declare("gpusPerWorker", "GPUs of each worker, its own", TypeConverters.toInt)
    strategy = declare(
        "strategy",
        '"data_parallel": workers in step; "parameter_server", "periodic": each at its own pace',
        to_strategy,
    )
    numPs = declare("numPs", "parameter servers of an asynchronous strategy", to_count("numPs"))
    syncInterval = declare(
        "syncInterval",
        'steps between two meetings of a worker with the server, for "periodic"',
        to_count("syncInterval"),
    )
    combiner = declare(
        "combiner", 'how a server takes in what a worker brings: "delta", "mean" or a function', to_combiner
    )
    shuffle = declare("shuffle", "whether each epoch has its own order", TypeConverters.toBoolean)
    seed = declare(
        "seed", "orders of rows, the split, Dropout and the like come from it", TypeConverters.toInt
    )
    loss = declare("loss", "a loss instead of the model's own: a name or a Keras object", to_keras_config)
    optimizer = declare("optimizer", "an optimizer instead of the model's own", to_keras_config)
    metrics = declare("metrics", "metrics instead of the model's own", to_keras_config)
    checkpointDir = declare("checkpointDir", "shared storage for checkpoints, kept", TypeConverters.toString)
    checkpointSteps = declare(
        "checkpointSteps", "steps between checkpoints, beside one after each epoch", TypeConverters.toInt
    )
    maxRestarts = declare("maxRestarts", "restarts after a lost worker", TypeConverters.toInt)
    startTimeout = declare("startTimeout", "seconds until all nodes must be up", TypeConverters.toFloat)
    joinTimeout = declare(
        "joinTimeout", "seconds until workers must have connected to each other", TypeConverters.toFloat
    )
    exchangeTimeout = declare(
        "exchangeTimeout",
        "seconds after which a node that does not answer during training is an error",
        TypeConverters.toFloat,
    )
    verbose = declare("verbose", "whether to show progress and the nodes' output", TypeConverters.toBoolean)


TRAINING_DEFAULTS: dict[str, Any] = {
    "validationSplit": 0.0,
    "epochs": 1,
    "numWorkers": "auto",
    "gpusPerWorker": 0,
    "strategy": "data_parallel",
    "numPs": 1,
    "syncInterval": 100,
    "combiner": "delta",
    "shuffle": True,
    "seed": 0,
    "checkpointSteps": 500,
    "maxRestarts": 0,
    "startTimeout": 120.0,
    "joinTimeout": 60.0,
    "exchangeTimeout": 600.0,
    "verbose": True,
}
