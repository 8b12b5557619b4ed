"""`KerasEstimator.fitStream` on the driver: a live cluster, the streaming query that feeds it, published versions."""

import json
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from emberflow import storage
from emberflow._choices import STRATEGIES
from emberflow._driver.interpreter import is_connect
from emberflow._driver.paths import resolve_path
from emberflow._driver.stream_training import check_stream
from emberflow._score.model_versions import versions_in
from emberflow.config import check_count, check_path
from emberflow.errors import ConfigError
from emberflow.ml.param_names import params_named
from emberflow.ml.publishing import LEAST_KEPT, is_published, publish_version
from emberflow.ml.run_params import run_options
from emberflow.ml.saving import write_metadata
from emberflow.ml.shown_params import shown_params
from emberflow.ml.stream_learning import TRAINED, VERSION, LearnFunction
from emberflow.ml.training import Trained
from emberflow.ml.training_description import training_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from emberflow.live_cluster import Cluster
    from emberflow.ml.estimator import KerasEstimator
    from emberflow.ml.model import KerasModel

OF_ONE_RUN = {"checkpoint_dir", "preload", "page"}  # options of ef.run that a cluster has otherwise, or not


@dataclass(frozen=True, kw_only=True)
class Publishing:
    """Where versions go: the folder, after how many micro-batches, and how many stay."""

    publish_to: str
    every: int
    keep: int

    def __post_init__(self) -> None:
        check_path("publishTo", self.publish_to or "")
        check_count("publishEvery", self.every)
        check_count("keepVersions", self.keep, least=LEAST_KEPT)


class VersionPublisher:
    """Publishes versions of a model that keeps learning.

    Args:
        template: A KerasModel with the Params that the versions have.
        publishing: Where they go.
    """

    def __init__(self, template: "KerasModel", publishing: Publishing) -> None:
        self.every = publishing.every
        self._template = template
        self._publishing = publishing

    def latest(self) -> int:
        """Return the highest number that is taken already."""
        return max((version.number for version in versions_in(self._publishing.publish_to)), default=0)

    def publish(self, model_path: str, number: int, origin: str) -> None:
        """Publish the version that the chief has exported beside a stored model."""
        publish_to, keep = self._publishing.publish_to, self._publishing.keep
        if is_published(publish_to, number, origin):
            return
        with tempfile.TemporaryDirectory() as name:
            storage.get_folder(model_path, name)
            folder = Path(name) / VERSION
            described = folder / TRAINED
            write_metadata(folder, self._template, json.loads(described.read_text()))
            described.unlink()
            publish_version(folder, publish_to, number, origin=origin, keep=keep)


class StreamingFit:
    """A Keras model that keeps learning: the streaming query, and the cluster that trains.

    Attributes:
        query: Spark's StreamingQuery. When it ends, the nodes end too.
    """

    def __init__(self, query: "StreamingQuery", cluster: "Cluster", publish_to: str) -> None:
        self.query = query
        self._cluster = cluster
        self._publish_to = publish_to
        self._end = threading.Thread(target=self._follow, name="emberflow-stream", daemon=True)
        self._end.start()

    def awaitTermination(self, timeout: int | None = None) -> bool:
        """Wait until the query ends, or for so many seconds; raise what ended it. Return whether it has ended."""
        if timeout is None:
            self.query.awaitTermination()
        elif not self.query.awaitTermination(timeout):
            return False
        self._end.join()
        return True

    def model(self) -> "KerasModel":
        """Return the newest published version."""
        from emberflow.ml.model import KerasModel

        return KerasModel.load(self._publish_to)

    def stop(self) -> None:
        """Stop the query after the micro-batch that is being trained on, and end the nodes."""
        self.query.stop()
        self._end.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _follow(self) -> None:
        """End the nodes with the query."""
        with suppress(Exception):  # the query's own error, which awaitTermination raises
            self.query.awaitTermination()
        with suppress(Exception):  # the nodes may be the reason; then the query's error has it
            self._cluster.stop()


def fit_stream(
    estimator: "KerasEstimator",
    stream: "DataFrame",
    checkpoint: str,
    publishing: Publishing,
    trigger: "Mapping[str, Any] | None",
    query_name: str | None,
) -> StreamingFit:
    """Start the nodes and the query; see `KerasEstimator.fitStream`."""
    from emberflow.cluster import cluster

    spark = stream.sparkSession
    check_stream(stream, checkpoint, is_connect=is_connect(spark))
    _check_params(estimator)
    checkpoint = resolve_path(spark, checkpoint)
    publishing = replace(publishing, publish_to=resolve_path(spark, publishing.publish_to))
    training, data = training_of(estimator, stream)
    options = {name: value for name, value in run_options(estimator).items() if name not in OF_ONE_RUN}
    template = estimator._model_of(Trained(keras_file=b"", history={}, outputs=()))  # noqa: SLF001 - internal to Emberflow
    shown = shown_params(estimator, model=estimator.model, callbacks=estimator.callbacks)
    learn = LearnFunction(training, shown)
    with params_named():
        nodes = cluster(learn, spark=spark, **options)
    try:
        if page := estimator.getOrDefault("page"):
            nodes.page(0 if page is True else page)
        query = nodes._start_stream(  # noqa: SLF001 - internal to Emberflow
            data["train"],
            checkpoint,
            epochs=estimator.getOrDefault("epochs"),
            publisher=VersionPublisher(template, publishing),
            trigger=trigger,
            query_name=query_name,
        )
    except BaseException:
        nodes.stop()
        raise
    return StreamingFit(query, nodes, publishing.publish_to)


def _check_params(estimator: "KerasEstimator") -> None:
    """Refuse Params that do not go with a stream."""
    if estimator.cluster is not None:
        raise ConfigError(
            "A stream has nodes of its own, which stay up. Received: an estimator with an idle cluster.",
            fix="Take it off before: estimator.setCluster(None).fitStream(...).",
        )
    strategy = estimator.getOrDefault("strategy")
    if STRATEGIES[strategy].is_asynchronous:
        raise ConfigError(
            f'A stream is trained on synchronously. Received: strategy="{strategy}".',
            fix='Leave strategy out, or pass strategy="data_parallel".',
        )
    if estimator.getOrDefault("validationSplit") or estimator.isDefined("validationIndicatorCol"):
        raise ConfigError(
            "A stream has no rows to validate on. Received: validationSplit or validationIndicatorCol.",
            fix="Leave them out, and evaluate published versions: KerasModel.load(publishTo).transform(df).",
        )
