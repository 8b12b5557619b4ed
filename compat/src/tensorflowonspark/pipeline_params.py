"""The Params of `TFEstimator` and `TFModel`, one class each, as they were."""
# ruff: noqa: D102 - each class is one Param; its accessors say nothing that the class does not

from collections.abc import Callable
from typing import Any, Self

from pyspark.ml.param import Param, Params, TypeConverters

from tensorflowonspark.old_errors import UsageError
from tensorflowonspark.pipeline_args import TFTypeConverters
from tensorflowonspark.TFCluster import InputMode


def _param(name: str, doc: str, converter: Callable[[Any], Any]) -> Any:
    return Param(Params._dummy(), name, doc, typeConverter=converter)  # noqa: SLF001 - Spark ML's way


class HasBatchSize(Params):
    """Rows per batch."""

    batch_size = _param("batch_size", "Number of records per batch", TypeConverters.toInt)

    def setBatchSize(self, value: int) -> Self:
        return self._set(batch_size=value)

    def getBatchSize(self) -> int:
        return self.getOrDefault(self.batch_size)  # type: ignore[no-any-return]


class HasClusterSize(Params):
    """Nodes in all."""

    cluster_size = _param("cluster_size", "Number of nodes in the cluster", TypeConverters.toInt)

    def setClusterSize(self, value: int) -> Self:
        return self._set(cluster_size=value)

    def getClusterSize(self) -> int:
        return self.getOrDefault(self.cluster_size)  # type: ignore[no-any-return]


class HasDriverPSNodes(Params):
    """Accepted, without effect in InputMode.SPARK."""

    driver_ps_nodes = _param("driver_ps_nodes", "Run PS nodes on driver locally", TypeConverters.toBoolean)

    def setDriverPSNodes(self, value: bool) -> Self:
        return self._set(driver_ps_nodes=value)

    def getDriverPSNodes(self) -> bool:
        return self.getOrDefault(self.driver_ps_nodes)  # type: ignore[no-any-return]


class HasEpochs(Params):
    """How often the rows are fed."""

    epochs = _param("epochs", "Number of epochs to train", TypeConverters.toInt)

    def setEpochs(self, value: int) -> Self:
        return self._set(epochs=value)

    def getEpochs(self) -> int:
        return self.getOrDefault(self.epochs)  # type: ignore[no-any-return]


class HasGraceSecs(Params):
    """Accepted; your function is waited for in any case."""

    grace_secs = _param("grace_secs", "Number of seconds to wait after feeding data", TypeConverters.toInt)

    def setGraceSecs(self, value: int) -> Self:
        return self._set(grace_secs=value)

    def getGraceSecs(self) -> int:
        return self.getOrDefault(self.grace_secs)  # type: ignore[no-any-return]


class HasInputMapping(Params):
    """Column of the DataFrame to tensor."""

    input_mapping = _param(
        "input_mapping", "Mapping of input DataFrame column to input tensor", TFTypeConverters.toDict
    )

    def setInputMapping(self, value: dict[str, str]) -> Self:
        return self._set(input_mapping=value)

    def getInputMapping(self) -> dict[str, str]:
        return self.getOrDefault(self.input_mapping)  # type: ignore[no-any-return]


class HasInputMode(Params):
    """InputMode.SPARK."""

    input_mode = _param("input_mode", "Input data feeding mode (0=TENSORFLOW, 1=SPARK)", TypeConverters.toInt)

    def setInputMode(self, value: int) -> Self:
        if value == InputMode.TENSORFLOW:
            raise UsageError(
                f"InputMode.TENSORFLOW is not supported by a TFEstimator. Received: input_mode={value}.",
                fix="Use TFCluster.run, or leave out setInputMode.",
            )
        return self._set(input_mode=value)

    def getInputMode(self) -> int:
        return self.getOrDefault(self.input_mode)  # type: ignore[no-any-return]


class HasMasterNode(Params):
    """The job name of the node that leads."""

    master_node = _param("master_node", "Job name of master/chief node", TypeConverters.toString)

    def setMasterNode(self, value: str | None) -> Self:
        return self._set(master_node=value)

    def getMasterNode(self) -> str | None:
        return self.getOrDefault(self.master_node)  # type: ignore[no-any-return]


class HasModelDir(Params):
    """Where checkpoints go."""

    model_dir = _param("model_dir", "Path to save/load model checkpoints", TypeConverters.toString)

    def setModelDir(self, value: str) -> Self:
        return self._set(model_dir=value)

    def getModelDir(self) -> str | None:
        return self.getOrDefault(self.model_dir)  # type: ignore[no-any-return]


class HasNumPS(Params):
    """Parameter servers."""

    num_ps = _param("num_ps", "Number of PS nodes in cluster", TypeConverters.toInt)

    def setNumPS(self, value: int) -> Self:
        return self._set(num_ps=value)

    def getNumPS(self) -> int:
        return self.getOrDefault(self.num_ps)  # type: ignore[no-any-return]


class HasOutputMapping(Params):
    """Output of the model to column."""

    output_mapping = _param(
        "output_mapping", "Mapping of output tensor to output DataFrame column", TFTypeConverters.toDict
    )

    def setOutputMapping(self, value: dict[str, str]) -> Self:
        return self._set(output_mapping=value)

    def getOutputMapping(self) -> dict[str, str]:
        return self.getOrDefault(self.output_mapping)  # type: ignore[no-any-return]


class HasProtocol(Params):
    """For your function; nothing else reads it."""

    protocol = _param("protocol", "Network protocol for Tensorflow (grpc|rdma)", TypeConverters.toString)

    def setProtocol(self, value: str) -> Self:
        return self._set(protocol=value)

    def getProtocol(self) -> str:
        return self.getOrDefault(self.protocol)  # type: ignore[no-any-return]


class HasReaders(Params):
    """For your function; nothing else reads it."""

    readers = _param("readers", "number of reader/enqueue threads", TypeConverters.toInt)

    def setReaders(self, value: int) -> Self:
        return self._set(readers=value)

    def getReaders(self) -> int:
        return self.getOrDefault(self.readers)  # type: ignore[no-any-return]


class HasSteps(Params):
    """For your function; nothing else reads it."""

    steps = _param("steps", "Maximum number of steps to train", TypeConverters.toInt)

    def setSteps(self, value: int) -> Self:
        return self._set(steps=value)

    def getSteps(self) -> int:
        return self.getOrDefault(self.steps)  # type: ignore[no-any-return]


class HasTensorboard(Params):
    """Whether TensorBoard is started."""

    tensorboard = _param("tensorboard", "Launch tensorboard process", TypeConverters.toBoolean)

    def setTensorboard(self, value: bool) -> Self:
        return self._set(tensorboard=value)

    def getTensorboard(self) -> bool:
        return self.getOrDefault(self.tensorboard)  # type: ignore[no-any-return]


class HasTFRecordDir(Params):
    """For your function; nothing else reads it."""

    tfrecord_dir = _param("tfrecord_dir", "Path to temporarily export a DataFrame", TypeConverters.toString)

    def setTFRecordDir(self, value: str) -> Self:
        return self._set(tfrecord_dir=value)

    def getTFRecordDir(self) -> str | None:
        return self.getOrDefault(self.tfrecord_dir)  # type: ignore[no-any-return]


class HasExportDir(Params):
    """Where the SavedModel is."""

    export_dir = _param("export_dir", "Directory to export saved_model", TypeConverters.toString)

    def setExportDir(self, value: str) -> Self:
        return self._set(export_dir=value)

    def getExportDir(self) -> str | None:
        return self.getOrDefault(self.export_dir)  # type: ignore[no-any-return]


class HasSignatureDefKey(Params):
    """The signature of the SavedModel."""

    signature_def_key = _param(
        "signature_def_key", "Identifier for a specific saved_model signature", TypeConverters.toString
    )

    def setSignatureDefKey(self, value: str | None) -> Self:
        return self._set(signature_def_key=value)

    def getSignatureDefKey(self) -> str | None:
        return self.getOrDefault(self.signature_def_key)  # type: ignore[no-any-return]


class HasTagSet(Params):
    """The tags of the SavedModel."""

    tag_set = _param(
        "tag_set", "Comma-delimited list of tags identifying a saved_model metagraph", TypeConverters.toString
    )

    def setTagSet(self, value: str | None) -> Self:
        return self._set(tag_set=value)

    def getTagSet(self) -> str | None:
        return self.getOrDefault(self.tag_set)  # type: ignore[no-any-return]
