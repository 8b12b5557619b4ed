"""KerasEstimator: a DataFrame in, a KerasModel out."""
# ruff: noqa: ARG002 - the constructor's arguments are in `_input_kwargs`, which tells those that were passed

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark import keyword_only
from pyspark.ml import Estimator

from emberflow._choices import GpuSource, Strategy, TransportChoice, WireDtype
from emberflow._feed.padding import PadTo
from emberflow._names import check_arguments, names_checked
from emberflow._score.model_versions import KEEP_VERSIONS
from emberflow.config import Count
from emberflow.errors import ConfigError
from emberflow.ml.keras_saving import EstimatorWriter, load_estimator
from emberflow.ml.model import KerasModel
from emberflow.ml.param_names import params_named
from emberflow.ml.params import TrainingParams, defaults_of, with_accessors
from emberflow.ml.run_params import RunParams, run_options
from emberflow.ml.saved_stage import SavedStage
from emberflow.ml.schema_checks import check_evaluation
from emberflow.ml.shown_params import shown_params
from emberflow.ml.training import Trained, TrainFunction, Training
from emberflow.ml.training_description import training_of
from emberflow.run import run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from emberflow._feed.file_source import FileSource
    from emberflow.live_cluster import Cluster
    from emberflow.ml.file_fit import Files
    from emberflow.ml.stream_fit import StreamingFit
    from emberflow.result import Result


@with_accessors
class KerasEstimator(Estimator[KerasModel], TrainingParams, RunParams, SavedStage):
    """Train a Keras model on the rows of a DataFrame, with one or many workers.

    Every row is seen exactly once in each epoch. Training is synchronous data parallel, unless `strategy` says
    otherwise: gradients, losses and metrics are those of all workers' rows together. Each Param can be passed by
    name, set by ``setX`` and read by ``getX``; one that is None is not set.

    Args:
        model: A compiled Keras model, or a function without arguments that builds one.
        callbacks: Keras callbacks; those that write files do so on the chief only.
        cluster: An idle cluster, ``ef.cluster(workers=2)``, whose nodes train: a second `fit` imports no TensorFlow.
        evaluation: ``ef.TFRecords(...)`` or ``ef.Parquet(...)``: one more node, the evaluator, evaluates each
            checkpoint on all rows of these files while the others train. Needs `checkpointDir`.
        featuresCol: The feature column.
        featuresCols: Several feature columns: one for each input of the model, or concatenated for its only input.
        labelCol: The label column.
        labelCols: Several label columns, one for each output of the model.
        weightCol: The column of sample weights.
        validationIndicatorCol: A boolean column: true for rows to validate on. Rows with null are trained on.
        validationSplit: Share of the rows to validate on, selected by `seed`.
        predictionCol: The column that ``transform`` adds with the class index or the value.
        rawPredictionCol: The column that ``transform`` adds with the model's output.
        probabilityCol: The column that ``transform`` adds with class probabilities, where the output is one.
        batchSize: Rows in one step of one worker.
        epochs: Passes over the rows.
        shuffle: Whether each epoch has its own order.
        seed: Determines the order of the rows, the validation split, Dropout and the initial weights.
        padTo: The length to which feature arrays of any length are padded: a number, "longest" (of all rows) or
            "batch" (of each batch). Rows that are longer than the number are an error.
        padValue: What is added at their end; 0 or an empty string if not set.
        exact: Whether to refuse losses and metrics that would differ from one process, for "data_parallel".
        wireDtype: As what gradients travel between hosts, for "data_parallel": "bfloat16" is half of the bytes, and
            not exact.
        loss: A loss instead of the model's own: a name or a Keras object.
        optimizer: An optimizer instead of the model's own.
        metrics: Metrics instead of the model's own.
        strategy: "data_parallel": synchronous. "parameter_server", "periodic": asynchronous.
        syncInterval: Steps between two exchanges of a worker with the server, for "periodic".
        combiner: How the server merges the update of a worker, for "periodic": "delta", "mean" or a function.
        checkpointSteps: Steps between checkpoints, in addition to one after each epoch.
        numWorkers: Nodes that train together; "auto": every slot that Spark offers.
        numPs: Parameter servers of an asynchronous strategy.
        gpusPerWorker: GPUs of each worker, its own: 0 or 1.
        gpuSource: "spark": GPUs that Spark schedules. "nvml": free GPUs of the host, where Spark manages none.
        gpuResource: Spark's name for its GPUs, if neither "gpu" nor the setting spark.emberflow.gpuResource.
        transport: How workers exchange gradients: "ring", "collectives" (NCCL on GPUs), or "auto".
        tensorboardDir: Storage that all nodes share, for event files; TensorBoard shows them during the training.
        tensorboardHost: The interface that TensorBoard listens on.
        checkpointDir: Storage that all nodes share, for checkpoints; kept afterwards.
        maxRestarts: How often all nodes may be restarted after a lost one.
        restartOnError: Whether an exception of the model or of a callback costs a restart too.
        spoolDir: Local folder for the rows of each worker; Spark's own if not set.
        spoolLimit: Most bytes of one worker's rows there.
        startTimeout: Seconds until all nodes must have joined.
        executorTimeout: Seconds in which all executors must register after the first one has, within `startTimeout`.
        joinTimeout: Seconds until workers must have connected to each other.
        exchangeTimeout: Seconds after which a node that does not answer during training is an error.
        preload: Whether nodes import TensorFlow and Keras while their rows arrive.
        verbose: Whether to show progress and the nodes' output on the driver.
        encrypt: Whether everything between driver and nodes is encrypted; always so where Spark encrypts its traffic.
        allowUnencrypted: Whether TensorFlow's own servers, which cannot encrypt, may run where all else is encrypted.
        driverHost: The address at which executors reach the driver; Spark's if not set.
        portRange: Ports that driver and nodes may listen on, such as "30000-30100".
        record: Folder for a record of what happens, on any storage; see ``emberflow runs``.
        page: Whether to serve a page of the training in a browser while it goes on; a number is its port on loopback.

    Example:
        >>> estimator = KerasEstimator(model=build, featuresCol="x", labelCol="y", epochs=3)  # doctest: +SKIP
        >>> estimator.fit(train_df).transform(test_df)  # doctest: +SKIP
    """

    _writer = EstimatorWriter
    _input_kwargs: dict[str, Any]

    @names_checked
    @keyword_only
    def __init__(
        self,
        *,
        model: "Callable[[], Any] | Any" = None,
        callbacks: "Sequence[Any] | None" = None,
        cluster: "Cluster | None" = None,
        evaluation: "FileSource | None" = None,
        featuresCol: str = "features",
        featuresCols: Sequence[str] | None = None,
        labelCol: str = "label",
        labelCols: Sequence[str] | None = None,
        weightCol: str | None = None,
        validationIndicatorCol: str | None = None,
        validationSplit: float = 0.0,
        predictionCol: str = "prediction",
        rawPredictionCol: str = "rawPrediction",
        probabilityCol: str = "probability",
        batchSize: int = 32,
        epochs: int = 1,
        shuffle: bool = True,
        seed: int = 0,
        padTo: PadTo = "longest",
        padValue: Any = None,
        exact: bool = True,
        wireDtype: WireDtype = "float32",
        loss: Any = None,
        optimizer: Any = None,
        metrics: Any = None,
        strategy: Strategy = "data_parallel",
        syncInterval: int = 100,
        combiner: Any = "delta",
        checkpointSteps: int = 500,
        numWorkers: Count = "auto",
        numPs: int = 1,
        gpusPerWorker: int = 0,
        gpuSource: GpuSource = "spark",
        gpuResource: str | None = None,
        transport: TransportChoice = "auto",
        tensorboardDir: str | None = None,
        tensorboardHost: str = "127.0.0.1",
        checkpointDir: str | None = None,
        maxRestarts: int = 0,
        restartOnError: bool = False,
        spoolDir: str | None = None,
        spoolLimit: int | None = None,
        startTimeout: float = 120.0,
        executorTimeout: float = 5.0,
        joinTimeout: float = 60.0,
        exchangeTimeout: float = 600.0,
        preload: bool = True,
        verbose: bool = True,
        encrypt: bool = False,
        allowUnencrypted: bool = False,
        driverHost: str | None = None,
        portRange: str | None = None,
        record: str | None = None,
        page: bool | int = False,
    ) -> None:
        super().__init__()
        self.model = model
        self.callbacks = list(callbacks or [])
        self.cluster = cluster
        self.evaluation = evaluation
        self._setDefault(**defaults_of(KerasEstimator))
        # Only what was passed is set: other Params keep their defaults, which a model may replace by its own.
        self._set_passed(self._input_kwargs)

    def setParams(self, **params: Any) -> "KerasEstimator":
        """Set arguments of the constructor; those that are not passed stay as they are."""
        check_arguments("KerasEstimator.setParams()", params, [*inspect.signature(KerasEstimator).parameters])
        if "model" in params:
            self.setModel(params["model"])
        if "callbacks" in params:
            self.setCallbacks(params["callbacks"])
        if "cluster" in params:
            self.setCluster(params["cluster"])
        if "evaluation" in params:
            self.setEvaluation(params["evaluation"])
        return self._set_passed(params)

    def setModel(self, model: "Callable[[], Any] | Any") -> "KerasEstimator":
        """Set the compiled Keras model, or the function that builds one."""
        self.model = model
        return self

    def setCallbacks(self, callbacks: list[Any]) -> "KerasEstimator":
        """Set the Keras callbacks."""
        self.callbacks = list(callbacks)
        return self

    def setCluster(self, cluster: "Cluster | None") -> "KerasEstimator":
        """Set the idle cluster whose nodes train; it is not saved with the estimator."""
        self.cluster = cluster
        return self

    def setEvaluation(self, evaluation: "FileSource | None") -> "KerasEstimator":
        """Set the files that an evaluator evaluates checkpoints on; they are not saved with the estimator."""
        self.evaluation = evaluation
        return self

    @classmethod
    def load(cls, path: str, *, trusted: bool = False) -> "KerasEstimator":
        """Load a saved estimator.

        Args:
            path: Where it was saved.
            trusted: Whether code in it may run: the function that builds the model, and callbacks.
        """
        return load_estimator(cls, path, trusted=trusted)

    def fitStream(
        self,
        dataset: "DataFrame",
        checkpointDir: str,
        publishTo: str,
        publishEvery: int = 1,
        *,
        keepVersions: int = KEEP_VERSIONS,
        trigger: Mapping[str, Any] | None = None,
        queryName: str | None = None,
    ) -> "StreamingFit":
        """Keep learning on a stream, and publish the model as numbered versions.

        The nodes stay up, and train on each micro-batch for `epochs` epochs. Model and micro-batch are stored
        together, so that each row is trained on exactly once, also when the query or this program is started again
        with the same `checkpointDir`.

        Args:
            dataset: The streaming DataFrame.
            checkpointDir: Storage that driver and nodes share, for the query and the model; one folder per stream.
            publishTo: The folder of versions: ``publishTo/12``; see `KerasModel.publish`.
            publishEvery: Publish after so many micro-batches with rows.
            keepVersions: How many versions stay.
            trigger: Arguments of Spark's ``trigger``: {"processingTime": "1 minute"}, {"availableNow": True}.
            queryName: The query's name in Spark's UI.

        Raises:
            ConfigError: It is no stream, or a session of Spark Connect, or the Params do not go with a stream.
        """
        from emberflow.ml.stream_fit import Publishing, fit_stream

        publishing = Publishing(publish_to=publishTo, every=publishEvery, keep=keepVersions)
        return fit_stream(self, dataset, checkpointDir, publishing, trigger, queryName)

    def fitFiles(
        self, source: "Files", *, validation: "Files | None" = None, spark: "SparkSession | None" = None
    ) -> KerasModel:
        """Train on files that the nodes read themselves, without a DataFrame.

        Args:
            source: ``ef.TFRecords(...)`` or ``ef.Parquet(...)`` with the columns of features and labels.
            validation: Files to validate on after each epoch.
            spark: The session; the active one if left out.

        Raises:
            ConfigError: A column is missing, or the Params split rows that Spark does not see.
        """
        from emberflow.ml.file_fit import fit_files

        self._check_gpus()
        return fit_files(self, source, validation, spark)

    def _fit(self, dataset: "DataFrame") -> KerasModel:
        self._check_gpus()
        training, data = training_of(self, dataset)
        return self._train(training, data, dataset.sparkSession)

    def _train(self, training: Training, data: Mapping[str, Any], spark: "SparkSession | None") -> KerasModel:
        """Run the training on these rows, by name."""
        options = run_options(self, self.cluster)
        if self.evaluation is not None:
            check_evaluation(options)
            options["evaluator"] = True
        train = TrainFunction(training, shown_params(self, model=self.model, callbacks=self.callbacks))
        with params_named():
            result = run(train, data=data, spark=spark, cluster=self.cluster, **options)
        return self._model_of(result.value, result)

    def _model_of(self, trained: Trained, result: "Result | None" = None) -> KerasModel:
        """Return a KerasModel with the Params of this estimator."""
        model = KerasModel(trained=trained, result=result)
        model._resetUid(self.uid.replace("KerasEstimator", "KerasModel"))  # noqa: SLF001
        self._copyValues(model)
        # That of the training; a call of the model takes as many rows as are fast.
        model.clear(model.batchSize)
        return model

    def _check_gpus(self) -> None:
        """Refuse several GPUs per worker: Keras trains on one, and the others would be idle."""
        workers, gpus = self.getOrDefault("numWorkers"), self.getOrDefault("gpusPerWorker")
        if gpus > 1:
            more = '"auto", which takes every GPU' if workers == "auto" else workers * gpus
            raise ConfigError(
                "KerasEstimator trains on one GPU of each worker; the others would be idle. "
                f"Received: numWorkers={workers!r}, gpusPerWorker={gpus}.",
                fix=f"Pass gpusPerWorker=1 and numWorkers={more}.",
            )
