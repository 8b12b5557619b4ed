"""FunctionEstimator: any function that trains on a DataFrame and exports a SavedModel, as a Spark ML stage."""
# ruff: noqa: ARG002 - the constructor's arguments are in `_input_kwargs`, which tells those that were passed

import functools
import inspect
import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.ml import Estimator
from pyspark.ml.param import TypeConverters
from pyspark.ml.param.shared import HasInputCols

from emberflow import storage
from emberflow._choices import GpuSource, Strategy, TransportChoice
from emberflow._driver.function_needs import packages_used
from emberflow._driver.paths import resolve_path
from emberflow._names import check_arguments, names_checked
from emberflow.config import EVALUATOR_TIMEOUT, Count, check_count
from emberflow.errors import ConfigError
from emberflow.ml.function_training import Exported, FunctionTraining
from emberflow.ml.param_names import params_named
from emberflow.ml.params import ValidationParams, arguments_kept, declare, defaults_of, with_accessors
from emberflow.ml.run_params import RUN_OPTIONS, RunParams, run_options, to_seconds
from emberflow.ml.saved_model_transformer import SavedModelTransformer
from emberflow.ml.saved_stage import SavedStage
from emberflow.ml.saving import StageWriter, check_trusted, read_metadata, with_params
from emberflow.ml.schema_checks import check_indicator, check_present
from emberflow.ml.scoring_params import SignatureParams
from emberflow.ml.shown_params import shown_params
from emberflow.ml.validation_rows import split_rows
from emberflow.predict import Errors
from emberflow.run import run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from emberflow.live_cluster import Cluster

FUNCTION = "function.pickle"  # code, loaded only when trusted
OWN_RUN_OPTIONS = {
    "numPs": "ps",
    "evaluator": "evaluator",
    "evaluatorTimeout": "evaluator_timeout",
    "cache": "cache",
}


class FunctionWriter(StageWriter):
    """Saves a FunctionEstimator."""

    def _fill(self, folder: Path) -> dict[str, Any]:
        from emberflow._driver.shipping import ship

        estimator: FunctionEstimator = self._instance
        args = estimator.getOrDefault("args")
        try:
            json.dumps(args)
        except TypeError as error:
            raise ConfigError(
                f"`args` must be numbers, text, lists and dicts to be saved: {error}. Received: args={args!r}.",
                fix="Make other objects inside your function, from such values.",
            ) from error
        (folder / FUNCTION).write_bytes(ship(estimator.fn, is_connect=False))
        return {"has_code": True}


def to_arguments(value: Any) -> dict[str, Any]:
    """Accept values by name."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ConfigError(
            f"`args` must be named arguments of your function. Received: args={value!r}.",
            fix='Pass args={"epochs": 3}; your function is called as fn(ctx, epochs=3).',
        )
    return dict(value)


def to_ps(value: Any) -> int | str:
    """Accept a whole number, 0 or more, or "auto"."""
    check_count("numPs", value, least=0, auto="to read NUM_TF_PS from Spark's executor environment")
    return value  # type: ignore[no-any-return]


@with_accessors
class FunctionEstimator(
    Estimator[SavedModelTransformer], ValidationParams, HasInputCols, SignatureParams, RunParams, SavedStage
):
    """Train with any TensorFlow function on the rows of a DataFrame; what it exports scores DataFrames.

    ``fit`` runs your function by `ef.run`, as ``fn(ctx, **args)`` in every node. It reads the rows with
    ``ctx.dataset()`` (and ``ctx.dataset("validation")``), trains in its own way, and returns the path of the
    SavedModel that it exported: ``return ctx.export(model, path)``. ``fit`` returns a `SavedModelTransformer` for it.
    Each Param can be passed by name, set by ``setX`` and read by ``getX``; one that is None is not set.

    Args:
        fn: Your function, called as ``fn(ctx, **args)``; on the chief it returns the path of a SavedModel.
        args: Named arguments of your function, so that Spark's tuning can set them.
        cluster: An idle cluster, ``ef.cluster(workers=2)``, whose nodes train: a second `fit` imports no TensorFlow.
        inputCols: The columns that your function reads; all if not set.
        validationIndicatorCol: A boolean column: true for rows to validate on. Rows with null are trained on.
        validationSplit: Share of the rows to validate on, selected by `seed`.
        seed: Determines that share; your function has its own seeds.
        inputs: For ``transform``: the column for each input of the model. It and `outputs`, `signature`, `tags`,
            `keepCols`, `errors`, `errorCol`, `shapes`, `dtypes`, `padTo` and `padValue` are those of
            `SavedModelTransformer`.
        numWorkers: Nodes that train together; "auto": every slot that Spark offers.
        numPs: Parameter servers in addition to the workers; "auto" reads NUM_TF_PS of Spark's executor environment.
        evaluator: Whether one more node runs your function, which evaluates while the others train.
        evaluatorTimeout: Seconds for a last evaluation after training is done.
        cache: Whether rows are kept on local disk for later epochs; False streams them once.
        strategy: "data_parallel": synchronous. "parameter_server", "periodic": asynchronous.

    The other arguments are options of `ef.run`, with the names that `KerasEstimator` has for them.

    Example:
        >>> estimator = FunctionEstimator(train, args={"epochs": 3}, numWorkers=2)  # doctest: +SKIP
        >>> estimator.fit(train_df).transform(test_df)  # doctest: +SKIP
    """

    _writer = FunctionWriter
    _input_kwargs: dict[str, Any]
    args = declare("args", "named arguments of the function: fn(ctx, **args)", to_arguments)
    numPs = declare("numPs", "parameter servers in addition to the workers", to_ps)
    evaluator = declare(
        "evaluator", "whether one more node runs the function as the evaluator", TypeConverters.toBoolean
    )
    evaluatorTimeout = declare(
        "evaluatorTimeout",
        "seconds for a last evaluation after training is done",
        to_seconds("evaluatorTimeout", EVALUATOR_TIMEOUT),
    )
    cache = declare("cache", "whether rows are kept on local disk for later epochs", TypeConverters.toBoolean)

    @names_checked
    @arguments_kept
    def __init__(
        self,
        fn: "Callable[..., Any]",
        *,
        args: Mapping[str, Any] | None = None,
        cluster: "Cluster | None" = None,
        inputCols: Sequence[str] | None = None,
        validationIndicatorCol: str | None = None,
        validationSplit: float = 0.0,
        seed: int = 0,
        inputs: str | Sequence[str] | Mapping[str, str | Sequence[str]] | None = None,
        outputs: Any = None,
        signature: str = "serving_default",
        tags: Sequence[str] = ("serve",),
        keepCols: Sequence[str] | None = None,
        errors: Errors = "raise",
        errorCol: str = "error",
        shapes: Mapping[str, Sequence[int | None]] | None = None,
        dtypes: Mapping[str, str] | None = None,
        padTo: Mapping[str, int] | None = None,
        padValue: Mapping[str, Any] | None = None,
        numWorkers: Count = "auto",
        numPs: Count = 0,
        evaluator: bool = False,
        evaluatorTimeout: float = 60.0,
        gpusPerWorker: int = 0,
        gpuSource: GpuSource = "spark",
        gpuResource: str | None = None,
        transport: TransportChoice = "auto",
        strategy: Strategy = "data_parallel",
        tensorboardDir: str | None = None,
        tensorboardHost: str = "127.0.0.1",
        checkpointDir: str | None = None,
        maxRestarts: int = 0,
        restartOnError: bool = False,
        cache: bool = True,
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
        self.fn = fn
        self.cluster = cluster
        self._setDefault(**defaults_of(FunctionEstimator), args={})
        self._set_passed(self._input_kwargs)

    def setParams(self, **params: Any) -> "FunctionEstimator":
        """Set arguments of the constructor; those that are not passed stay as they are."""
        check_arguments(
            "FunctionEstimator.setParams()", params, [*inspect.signature(FunctionEstimator).parameters]
        )
        self.fn = params.get("fn", self.fn)
        self.cluster = params.get("cluster", self.cluster)
        return self._set_passed(params)

    def setFn(self, fn: "Callable[..., Any]") -> "FunctionEstimator":
        """Set your function."""
        self.fn = fn
        return self

    def setCluster(self, cluster: "Cluster | None") -> "FunctionEstimator":
        """Set the idle cluster whose nodes train; it is not saved with the estimator."""
        self.cluster = cluster
        return self

    @classmethod
    def load(cls, path: str, *, trusted: bool = False) -> "FunctionEstimator":
        """Load a saved estimator.

        Args:
            path: Where it was saved.
            trusted: Whether code in it may run: your function.
        """
        path = resolve_path(None, path)
        metadata = read_metadata(cls, path)
        check_trusted(cls, path, [FUNCTION], trusted=trusted)
        fn = pickle.loads(storage.read_bytes(storage.join(path, FUNCTION)))
        return with_params(cls(fn), metadata)

    def _fit(self, dataset: "DataFrame") -> SavedModelTransformer:
        from emberflow._driver.shipping import ship

        fn = self._function()
        data = self._rows(dataset)
        options = run_options(self, self.cluster)
        options |= {option: self.getOrDefault(name) for name, option in OWN_RUN_OPTIONS.items()}
        shown = shown_params(self, {*RUN_OPTIONS, *OWN_RUN_OPTIONS}, fn=self.fn)
        training = FunctionTraining(ship(fn, is_connect=False), packages_used(fn), shown)
        with params_named():
            result = run(training, data=data, spark=dataset.sparkSession, cluster=self.cluster, **options)
        exported: Exported = result.value
        model = SavedModelTransformer(exported.path)
        model._resetUid(self.uid.replace("FunctionEstimator", "SavedModelTransformer"))  # noqa: SLF001
        model.result, model._exported = result, exported  # noqa: SLF001 - a class of ours
        return self._copyValues(model)

    def _function(self) -> "Callable[[Any], Any]":
        """Return your function with its arguments; refuse arguments that it does not take."""
        args = self.getOrDefault("args")
        if not callable(self.fn):
            raise ConfigError(
                f"`fn` must be a function of `ctx`. Received: fn={self.fn!r}.",
                fix="Pass the function itself: FunctionEstimator(train), not FunctionEstimator(train()).",
            )
        try:
            inspect.signature(self.fn).bind(None, **args)
        except TypeError as error:
            name = getattr(self.fn, "__name__", "fn")
            raise ConfigError(
                f"Your function must take `ctx` and `args`: {error}. Received: {name}{inspect.signature(self.fn)}, "
                f"args={args!r}.",
                fix=f"Define it as def {name}({', '.join(['ctx', *args])}), or change args.",
            ) from error
        return functools.partial(self.fn, **args) if args else self.fn

    def _rows(self, dataset: "DataFrame") -> "dict[str, DataFrame]":
        """Return the rows to train on, and those to validate on if there are any, by name."""
        indicator = (
            self.getOrDefault("validationIndicatorCol") if self.isDefined("validationIndicatorCol") else None
        )
        columns = self.getOrDefault("inputCols") if self.isDefined("inputCols") else None
        wanted = [*(columns or []), *([indicator] if indicator else [])]
        check_present(dataset.columns, wanted, "inputCols and validationIndicatorCol")
        if indicator:
            check_indicator(dataset, indicator)
        return split_rows(self, dataset, columns or [name for name in dataset.columns if name != indicator])
