"""KerasEstimator: a DataFrame in, a KerasModel out."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import cloudpickle
from pyspark import keyword_only
from pyspark.ml import Estimator
from pyspark.ml.util import MLWritable

from emberflow.errors import ConfigError
from emberflow.ml.inputs import Columns
from emberflow.ml.model import KerasModel
from emberflow.ml.params import COLUMN_DEFAULTS, TRAINING_DEFAULTS, TrainingParams, with_accessors
from emberflow.ml.saving import EstimatorWriter, StageReader, load_estimator
from emberflow.ml.training import TrainFunction, Training, file_of
from emberflow.run import run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@with_accessors
class KerasEstimator(Estimator[KerasModel], TrainingParams, MLWritable):
    """Trains a Keras model on the rows of a DataFrame, with one or many workers.

    Every row is seen exactly once in each epoch. Training is synchronous data parallel, unless `strategy` says
    otherwise: gradients, losses and metrics are those of all workers' rows together. Each Param can be passed by
    name, set by ``setX`` and read by ``getX``.

    Args:
        model: A compiled Keras model, or a function without arguments that builds one.
        callbacks: Keras callbacks; those that write files do so on the chief only.
        **params: Any Param, such as ``featuresCol="image"``, ``epochs=3``, ``numWorkers=4``.

    Example:
        >>> estimator = KerasEstimator(model=build, featuresCol="x", labelCol="y", epochs=3)  # doctest: +SKIP
        >>> estimator.fit(train_df).transform(test_df)  # doctest: +SKIP
    """

    _input_kwargs: dict[str, Any]

    @keyword_only
    def __init__(
        self,
        *,
        model: "Callable[[], Any] | Any" = None,
        callbacks: "list[Any] | None" = None,
        **params: Any,  # noqa: ARG002 - taken from _input_kwargs, as Spark's own stages do
    ) -> None:
        super().__init__()
        self.model = model
        self.callbacks = list(callbacks or [])
        self._setDefault(**COLUMN_DEFAULTS, **TRAINING_DEFAULTS)
        given = {
            name: value for name, value in self._input_kwargs.items() if name not in ("model", "callbacks")
        }
        unknown = sorted(name for name in given if not self.hasParam(name))
        if unknown:
            raise ConfigError(
                f"KerasEstimator has no Param of this name. Received: {unknown}.",
                fix="See KerasEstimator().explainParams().",
            )
        self._set(**{name: value for name, value in given.items() if value is not None})

    def setModel(self, model: "Callable[[], Any] | Any") -> "KerasEstimator":
        """Set the compiled Keras model, or the function that builds one."""
        self.model = model
        return self

    def setCallbacks(self, callbacks: list[Any]) -> "KerasEstimator":
        """Set the Keras callbacks."""
        self.callbacks = list(callbacks)
        return self

    def write(self) -> EstimatorWriter:  # type: ignore[override] # Spark's own needs the JVM
        """Return what saves this estimator: ``write().overwrite().save(path)``."""
        return EstimatorWriter(self)

    def save(self, path: str) -> None:
        """Save this estimator; refuse a path that exists."""
        self.write().save(path)

    @classmethod
    def read(cls) -> StageReader:
        """Return what loads an estimator."""
        return StageReader(cls.load)

    @classmethod
    def load(cls, path: str, *, trusted: bool = False) -> "KerasEstimator":
        """Load an estimator.

        Args:
            path: Where it was saved.
            trusted: Whether code in it may run: a building function or callbacks were saved as code.
        """
        return load_estimator(cls, path, trusted=trusted)

    def _fit(self, dataset: "DataFrame") -> KerasModel:
        self._check_gpus()
        training, data = self._training(dataset)
        strategy = self.getOrDefault("strategy")
        result = run(
            TrainFunction(training),
            workers=self.getOrDefault("numWorkers"),
            data=data,
            gpus=self.getOrDefault("gpusPerWorker"),
            strategy=strategy,
            ps=0 if strategy == "data_parallel" else self.getOrDefault("numPs"),
            checkpoint_dir=self.getOrDefault("checkpointDir") if self.isDefined("checkpointDir") else None,
            max_restarts=self.getOrDefault("maxRestarts"),
            start_timeout=self.getOrDefault("startTimeout"),
            join_timeout=self.getOrDefault("joinTimeout"),
            exchange_timeout=self.getOrDefault("exchangeTimeout"),
            verbose=self.getOrDefault("verbose"),
            spark=dataset.sparkSession,
        )
        model = KerasModel(trained=result.value, result=result)
        model._resetUid(self.uid.replace("KerasEstimator", "KerasModel"))  # noqa: SLF001
        return self._copyValues(model)

    def _check_gpus(self) -> None:
        """Refuse several GPUs for each worker: Keras trains on one, and the others would be idle."""
        workers, gpus = self.getOrDefault("numWorkers"), self.getOrDefault("gpusPerWorker")
        if gpus > 1:
            more = '"auto", which takes every GPU' if workers == "auto" else workers * gpus
            raise ConfigError(
                "KerasEstimator trains on one GPU of each worker; the others would be idle. "
                f"Received: numWorkers={workers!r}, gpusPerWorker={gpus}.",
                fix=f"Pass gpusPerWorker=1 and numWorkers={more}.",
            )

    def _training(self, dataset: "DataFrame") -> "tuple[Training, dict[str, DataFrame]]":
        """Return what the nodes are told, and the rows they get."""
        columns = self._columns(dataset)
        data = self._split(dataset, columns)
        return (
            Training(
                **self._shipped_model(),
                compiling={
                    name: self.getOrDefault(name)
                    for name in ("loss", "optimizer", "metrics")
                    if self.isDefined(name)
                },
                callbacks=cloudpickle.dumps(self.callbacks) if self.callbacks else b"",
                columns=columns,
                batch_size=self.getOrDefault("batchSize"),
                epochs=self.getOrDefault("epochs"),
                shuffle=self.getOrDefault("shuffle"),
                seed=self.getOrDefault("seed"),
                has_validation="validation" in data,
                checkpoint_steps=self.getOrDefault("checkpointSteps"),
                strategy=self.getOrDefault("strategy"),
                sync_interval=self.getOrDefault("syncInterval"),
                combiner=self.getOrDefault("combiner"),
            ),
            data,
        )

    def _shipped_model(self) -> dict[str, bytes]:
        from emberflow._spark.shipping import ship

        if self.model is None:
            raise ConfigError(
                "KerasEstimator needs a model. Received: model=None.",
                fix="Pass model=build_model, a function that returns a compiled Keras model.",
            )
        if callable(self.model) and not hasattr(self.model, "compile"):
            return {"builder": ship(self.model, is_connect=False)}
        return {"keras_file": file_of(self.model)}

    def _columns(self, dataset: "DataFrame") -> Columns:
        features, labels = self.feature_columns(), self.label_columns()
        weight = self.getOrDefault("weightCol") if self.isDefined("weightCol") else None
        wanted = [*features, *labels, *([weight] if weight else [])]
        missing = [name for name in wanted if name not in dataset.columns]
        if missing:
            raise ConfigError(
                f"The DataFrame must have the columns {wanted}. Received: {dataset.columns}, without {missing}.",
                fix="Set featuresCol, labelCol and weightCol to columns of the DataFrame.",
            )
        kinds = dict(dataset.dtypes)
        binary = tuple(name for name in features if kinds[name] == "binary")
        return Columns(features=tuple(features), labels=tuple(labels), weight=weight, binary=binary)

    def _split(self, dataset: "DataFrame", columns: Columns) -> "dict[str, DataFrame]":
        """Return the rows to train on, and those to validate on if there are any."""
        from pyspark.sql import functions as F

        wanted = [*columns.features, *columns.labels, *([columns.weight] if columns.weight else [])]
        needed = [F.col(f"`{name}`") for name in dict.fromkeys(wanted)]
        if self.isDefined("validationIndicatorCol"):
            indicator = F.col(f"`{self.getOrDefault('validationIndicatorCol')}`")
            held_out = F.coalesce(indicator, F.lit(False))  # a row without an indicator is trained on
            return {
                "train": dataset.filter(~held_out).select(*needed),
                "validation": dataset.filter(held_out).select(*needed),
            }
        share = self.getOrDefault("validationSplit")
        rows = dataset.select(*needed)
        if not share:
            return {"train": rows}
        first, second = rows.randomSplit([1.0 - share, share], seed=self.getOrDefault("seed"))
        return {"train": first, "validation": second}
