"""The training that an estimator's Params describe: its columns, its rows, and what is sent to the nodes."""

import functools
from typing import TYPE_CHECKING

import cloudpickle

from emberflow._driver.paths import resolve_path
from emberflow._driver.row_routing import with_resolved_path
from emberflow.errors import ConfigError
from emberflow.ml.model_columns import TrainingColumns, tensors_of
from emberflow.ml.schema_checks import check_columns, check_inputs
from emberflow.ml.training import Training, file_of
from emberflow.ml.validation_rows import split_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from emberflow.ml.estimator import KerasEstimator


def training_of(estimator: "KerasEstimator", dataset: "DataFrame") -> "tuple[Training, dict[str, DataFrame]]":
    """Return the description of the training, and the rows by name."""
    columns = columns_of(estimator, dataset)
    needed = [*columns.features, *columns.labels, *([columns.weight] if columns.weight else [])]
    data = split_rows(estimator, dataset, needed)
    return describe_training(estimator, columns, has_validation="validation" in data), data


def describe_training(
    estimator: "KerasEstimator", columns: TrainingColumns, *, has_validation: bool
) -> Training:
    """Return the description of a training on these columns."""
    return Training(
        **_shipped_model(estimator),
        compiling={
            name: estimator.getOrDefault(name)
            for name in ("loss", "optimizer", "metrics")
            if estimator.isDefined(name)
        },
        callbacks=_shipped_callbacks(estimator),
        columns=columns,
        batch_size=estimator.getOrDefault("batchSize"),
        epochs=estimator.getOrDefault("epochs"),
        shuffle=estimator.getOrDefault("shuffle"),
        seed=estimator.getOrDefault("seed"),
        exact=estimator.getOrDefault("exact"),
        wire_dtype=estimator.getOrDefault("wireDtype"),
        has_validation=has_validation,
        checkpoint_steps=estimator.getOrDefault("checkpointSteps"),
        pad_to=estimator.getOrDefault("padTo"),
        pad_value=estimator.getOrDefault("padValue") if estimator.isDefined("padValue") else None,
        strategy=estimator.getOrDefault("strategy"),
        sync_interval=estimator.getOrDefault("syncInterval"),
        combiner=estimator.getOrDefault("combiner"),
        tensorboard=resolve_path(None, estimator.getOrDefault("tensorboardDir"))
        if estimator.isDefined("tensorboardDir")
        else None,
        evaluation=estimator.evaluation and with_resolved_path(None, estimator.evaluation),
    )


def _shipped_model(estimator: "KerasEstimator") -> dict[str, bytes]:
    from emberflow._driver.shipping import ship

    if estimator.model is None:
        raise ConfigError(
            "KerasEstimator must have a model. Received: model=None.",
            fix="Pass model=build_model, a function that returns a compiled Keras model.",
        )
    if callable(estimator.model) and not hasattr(estimator.model, "compile"):
        return {"builder": ship(estimator.model, is_connect=False)}
    return {"keras_file": file_of(estimator.model)}


def _shipped_callbacks(estimator: "KerasEstimator") -> bytes:
    if not estimator.callbacks:
        return b""
    from emberflow._node.mirrored_callbacks import with_resolved_paths

    callbacks = with_resolved_paths(estimator.callbacks, functools.partial(resolve_path, None))
    pickled: bytes = cloudpickle.dumps(callbacks)
    return pickled


def columns_of(estimator: "KerasEstimator", dataset: "DataFrame") -> TrainingColumns:
    """Return the columns to train on, checked against the DataFrame."""
    features, labels = estimator.feature_columns(), estimator.label_columns()
    weight = (
        estimator.getOrDefault("weightCol") if estimator.isDefined("weightCol") else None
    ) or None  # "" means none, as in Spark
    indicator = (
        estimator.getOrDefault("validationIndicatorCol")
        if estimator.isDefined("validationIndicatorCol")
        else None
    )
    check_columns(dataset, features=features, labels=labels, weight=weight, indicator=indicator)
    kinds = dict(dataset.dtypes)
    binary = tuple(name for name in features if kinds[name] == "binary")
    columns = TrainingColumns(features=tuple(features), labels=tuple(labels), weight=weight, binary=binary)
    if hasattr(estimator.model, "compile"):  # what a function builds is known on the nodes only
        check_inputs(dataset.schema, columns, tensors_of(estimator.model)[0])
    return columns
