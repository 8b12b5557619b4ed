"""`TFEstimator` and `TFModel`: your function and its SavedModel as stages of a Spark ML pipeline."""

import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.ml import Estimator, Model

import emberflow as ef
from emberflow_compat import deadlines
from tensorflowonspark import TFCluster, util
from tensorflowonspark.node_gpus import wanted_gpus
from tensorflowonspark.old_errors import DeprecatedError, UsageError
from tensorflowonspark.pipeline_args import Namespace, TFParams, TFTypeConverters
from tensorflowonspark.pipeline_params import (
    HasBatchSize,
    HasClusterSize,
    HasDriverPSNodes,
    HasEpochs,
    HasExportDir,
    HasGraceSecs,
    HasInputMapping,
    HasInputMode,
    HasMasterNode,
    HasModelDir,
    HasNumPS,
    HasOutputMapping,
    HasProtocol,
    HasReaders,
    HasSignatureDefKey,
    HasSteps,
    HasTagSet,
    HasTensorboard,
    HasTFRecordDir,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "HasBatchSize",
    "HasClusterSize",
    "HasDriverPSNodes",
    "HasEpochs",
    "HasExportDir",
    "HasGraceSecs",
    "HasInputMapping",
    "HasInputMode",
    "HasMasterNode",
    "HasModelDir",
    "HasNumPS",
    "HasOutputMapping",
    "HasProtocol",
    "HasReaders",
    "HasSignatureDefKey",
    "HasSteps",
    "HasTFRecordDir",
    "HasTagSet",
    "HasTensorboard",
    "Namespace",
    "TFEstimator",
    "TFModel",
    "TFParams",
    "TFTypeConverters",
    "get_meta_graph_def",
    "single_node_env",
    "yield_batch",
]

logger = logging.getLogger(__name__)

WIDER = {"float": "double", "int": "bigint"}  # what numbers were in the columns of the old library


class TFEstimator(
    Estimator["TFModel"],
    TFParams,
    HasInputMapping,
    HasClusterSize,
    HasNumPS,
    HasInputMode,
    HasMasterNode,
    HasProtocol,
    HasGraceSecs,
    HasTensorboard,
    HasModelDir,
    HasExportDir,
    HasTFRecordDir,
    HasBatchSize,
    HasEpochs,
    HasReaders,
    HasSteps,
    HasDriverPSNodes,
):
    """Train with your function on the rows of a DataFrame, fed through `DataFeed`.

    Args:
        train_fn: Your function, called as ``train_fn(args, ctx)`` on each node.
        tf_args: Its arguments: a dict, an ``argparse.Namespace``, or a list for `sys.argv`.
        export_fn: Must be None: with TensorFlow 2 your function exports the model itself.
    """

    def __init__(
        self,
        train_fn: Callable[[Any, Any], Any],
        tf_args: Any,
        export_fn: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__()
        self.train_fn = train_fn
        self.args = Namespace(tf_args)
        self.export_fn = export_fn
        self._setDefault(
            input_mapping={},
            cluster_size=1,
            num_ps=0,
            driver_ps_nodes=False,
            input_mode=TFCluster.InputMode.SPARK,
            master_node="chief",
            protocol="grpc",
            tensorboard=False,
            model_dir=None,
            export_dir=None,
            tfrecord_dir=None,
            batch_size=100,
            epochs=1,
            readers=1,
            steps=1000,
            grace_secs=deadlines.GRACE_SECS,
        )

    def _fit(self, dataset: "DataFrame") -> "TFModel":
        if self.export_fn is not None:
            raise DeprecatedError(
                "DEPRECATED: export_fn is for TensorFlow 1. Received: export_fn with TensorFlow 2.",
                fix="Export in your function: compat.export_saved_model(model, args.export_dir, is_chief).",
            )
        args = self.merge_args_params()
        cluster = TFCluster.run(
            dataset.sparkSession.sparkContext,
            self.train_fn,
            args.argv or args,
            args.cluster_size,
            args.num_ps,
            args.tensorboard,
            TFCluster.InputMode.SPARK,
            master_node=args.master_node,
            driver_ps_nodes=args.driver_ps_nodes,
        )
        try:
            cluster.train_frame(dataset.select(*sorted(args.input_mapping)), args.epochs)
        finally:
            cluster.shutdown(grace_secs=args.grace_secs)
        return self._copyValues(TFModel(self.args))


class TFModel(
    Model,
    TFParams,
    HasInputMapping,
    HasOutputMapping,
    HasBatchSize,
    HasModelDir,
    HasExportDir,
    HasSignatureDefKey,
    HasTagSet,
):
    """Score a DataFrame with a SavedModel: `transform` returns the outputs only, in the order of their names.

    Args:
        tf_args: Arguments that Params are merged with.
    """

    def __init__(self, tf_args: Any) -> None:
        super().__init__()
        self.args = Namespace(tf_args)
        self._setDefault(
            input_mapping={},
            output_mapping={},
            batch_size=100,
            model_dir=None,
            export_dir=None,
            signature_def_key=None,
            tag_set=None,
        )

    def _transform(self, dataset: "DataFrame") -> "DataFrame":
        args = self.merge_args_params()
        if not args.export_dir:
            raise UsageError(
                "Inferencing with TensorFlow 2 requires a SavedModel. Received: no export_dir.",
                fix="Call setExportDir(path).",
            )
        outputs = dict(sorted(args.output_mapping.items()))
        stage = ef.SavedModelTransformer(
            args.export_dir,
            inputs={tensor: column for column, tensor in args.input_mapping.items()},
            outputs=outputs,
            keepCols=[],
            batchSize=args.batch_size,
            signature=args.signature_def_key or "serving_default",
            tags=(args.tag_set or "serve").split(","),
        )
        scored = stage.transform(dataset.select(*sorted(args.input_mapping)))
        return scored.select(*(_widened(scored, column) for column in outputs.values()))


def _widened(frame: "DataFrame", column: str) -> Any:
    """Return a column with the types that Python's numbers had in the old library."""
    kind = frame.schema[column].dataType.simpleString()
    for narrow, wide in WIDER.items():
        if kind.replace("array<", "").rstrip(">") == narrow:
            kind = kind.replace(narrow, wide)
    return frame[column].cast(kind)


def yield_batch(iterable: Iterable[Any], batch_size: int, num_tensors: int = 1) -> Iterator[list[list[Any]]]:
    """Yield batches of rows as one list per tensor; the last one may be shorter."""
    tensors: list[list[Any]] = [[] for _ in range(num_tensors)]
    for item in iterable:
        if item is None:
            break
        for place in range(num_tensors):
            tensors[place].append(item[place])
        if len(tensors[0]) >= batch_size:
            yield tensors
            tensors = [[] for _ in range(num_tensors)]
    if tensors[0]:
        yield tensors


def single_node_env(args: Any) -> None:
    """Prepare this process for a function that runs alone: `sys.argv`, and the GPUs that it may see."""
    if isinstance(args, list):
        sys.argv = args
    wanted = wanted_gpus(args)
    util.single_node_env(1 if wanted is None else wanted)


def get_meta_graph_def(saved_model_dir: str, tag_set: str) -> Any:
    """Refuse: it is for TensorFlow 1."""
    raise DeprecatedError(
        f"DEPRECATED: get_meta_graph_def is for TensorFlow 1. Received: {saved_model_dir!r}, {tag_set!r}.",
        fix="Load the model: tf.saved_model.load(path).",
    )
