"""Training on a stream: each micro-batch is a round, stored with its model before Spark is told that it is done."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from emberflow import storage
from emberflow._driver.round_feeding import RoundStorage
from emberflow._driver.stream_progress import StoredBatch, StreamProgress
from emberflow._plan import deadlines
from emberflow.config import check_path
from emberflow.errors import ConfigError, DataError, StreamError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from emberflow._driver.live_feeding import LiveFeeding

QUERY = "query"  # Spark's own checkpoint of the query, in the folder of the stream
MODEL = "model"  # ours, beside it


class Publisher(Protocol):
    """What publishes versions of a model that keeps learning: one after every so many batches that it trained on."""

    every: int

    def latest(self) -> int:
        """Return the highest number that is taken already, before the stream's first batch."""

    def publish(self, model_path: str, number: int, origin: str) -> None:
        """Publish the version that was stored at a path; nothing if this very one is there already."""


@dataclass
class NodesModel:
    """What is known of the model that the nodes of a cluster hold.

    Attributes:
        ahead: The feeds of nodes that have trained on a batch that was not stored; None if there are none.
    """

    ahead: "LiveFeeding | None" = None


class StreamTraining:
    """The function that Spark calls with each micro-batch, and the record of what it has trained on.

    Args:
        checkpoint: The folder of the stream.
        through: Makes a call to the nodes that are up; again if they were lost meanwhile and start again.
        nodes: What is known of their model.
        name: The name under which the nodes find the rows.
        epochs: How often each micro-batch is trained on.
        publisher: What publishes versions, if anything.

    Attributes:
        query_id: Must be set when the query has been started.
    """

    def __init__(
        self,
        checkpoint: str,
        through: "Callable[[Callable[[LiveFeeding], Any]], Any]",
        nodes: NodesModel,
        *,
        name: str,
        epochs: int,
        publisher: Publisher | None = None,
    ) -> None:
        self._progress = StreamProgress(storage.join(checkpoint, MODEL))
        self._through = through
        self._nodes = nodes
        self._name = name
        self._epochs = epochs
        self._publisher = publisher
        self._in_step: LiveFeeding | None = None  # the feeds of nodes whose model is the last stored one
        self.query_id: Future[str] = Future()

    def __call__(self, batch: "DataFrame", batch_id: int) -> None:
        """Train on a micro-batch and store the model; a batch that is stored already is skipped."""
        query_id = self.query_id.result(deadlines.QUERY_START_TIMEOUT)
        last = self._progress.last
        if self._progress.is_stored(query_id, batch_id):
            self._publish()  # the driver before may have been killed in between
            return
        columns = batch.schema.simpleString()
        _check_columns(last, columns)
        stored = replace(last or StoredBatch(query_id=query_id, batch_id=batch_id), batch_id=batch_id)
        if not batch.isEmpty():
            stored, self._nodes.ahead = self._trained(batch, replace(stored, columns=columns))
        self._progress.store(stored)
        self._in_step, self._nodes.ahead = self._nodes.ahead or self._in_step, None
        self._publish()

    def _trained(self, batch: "DataFrame", stored: StoredBatch) -> tuple[StoredBatch, "LiveFeeding"]:
        """Train on a batch that has rows; return it with the model that the chief has stored, and by which nodes."""
        stored = self._with_version(stored)

        def train(feeding: "LiveFeeding") -> "tuple[StoredBatch, LiveFeeding]":
            order = RoundStorage(
                resume_from=self._resume_from(feeding),
                store_to=self._progress.new_model_folder(stored.batch_id),
                exports=stored.has_version,
            )
            fed = feeding.train(batch, self._epochs, self._name, order)
            _check_stored(order.store_to)
            model = self._progress.relative(order.store_to)
            return replace(stored, model=model, rows=stored.rows + fed.rows), feeding

        done: tuple[StoredBatch, LiveFeeding] = self._through(train)
        return done

    def _with_version(self, stored: StoredBatch) -> StoredBatch:
        """Return the batch with the number of its version, if one is due."""
        if self._publisher is None:
            return stored
        version = stored.version if stored.model else self._publisher.latest()
        batches = stored.batches_since_version + 1
        if batches >= self._publisher.every:
            return replace(stored, version=version + 1, batches_since_version=0)
        return replace(stored, version=version, batches_since_version=batches)

    def _resume_from(self, feeding: "LiveFeeding") -> str:
        """Return the stored model that these nodes must restore; empty if they hold it, or if there is none yet."""
        last = self._progress.last
        if last is not None and last.model:
            return "" if feeding is self._in_step else self._progress.model_path(last)
        if feeding is self._nodes.ahead:
            raise StreamError(
                "The nodes must begin with a model that has seen none of the stream. Received: nodes that have "
                "trained on its first batch, which could not be stored.",
                fix="Start the cluster again, and then the stream.",
            )
        return ""

    def _publish(self) -> None:
        """Publish the version of the last stored batch, if it has one that is not there."""
        last = self._progress.last
        if self._publisher is not None and last is not None and last.has_version:
            self._progress.check_current()
            self._publisher.publish(self._progress.model_path(last), last.version, origin=last.model)


def start_query(
    stream: "DataFrame",
    training: StreamTraining,
    checkpoint: str,
    *,
    trigger: Mapping[str, Any] | None,
    query_name: str | None,
) -> "StreamingQuery":
    """Start the streaming query that brings micro-batches to a training."""
    writer = stream.writeStream.foreachBatch(training)
    writer = writer.option("checkpointLocation", storage.join(checkpoint, QUERY))
    if trigger:
        writer = writer.trigger(**trigger)
    if query_name:
        writer = writer.queryName(query_name)
    try:
        query = writer.start()
    except BaseException as error:
        training.query_id.set_exception(error)
        raise
    training.query_id.set_result(query.id)
    return query


def check_stream(stream: Any, checkpoint: str, *, is_connect: bool) -> None:
    """Refuse what is no stream of this driver."""
    check_path("checkpoint", checkpoint)
    if not getattr(stream, "isStreaming", False):
        raise ConfigError(
            f"`stream` must be a streaming DataFrame. Received: {type(stream).__name__}, which is none.",
            fix="Pass spark.readStream...load(); for a DataFrame that has an end, call cluster.train(df). The "
            "DStreams of older programs are deprecated in Spark: read the same source by spark.readStream.",
        )
    if is_connect:
        raise ConfigError(
            "Training on a stream needs a classic Spark session. Received: a session of Spark Connect, which runs "
            "the function of foreachBatch in the server's process, away from this cluster.",
            fix="Run the program by spark-submit, or with SparkSession.builder.master(...).",
        )


def _check_stored(model: str) -> None:
    if not storage.exists(model):
        raise StreamError(
            f"The chief's model must be where this driver finds it. Received: nothing at {model}.",
            fix="Pass a checkpoint folder on storage that driver and nodes share: hdfs://, s3://, or a mount.",
        )


def _check_columns(last: StoredBatch | None, columns: str) -> None:
    if last is not None and last.columns and last.columns != columns:
        raise DataError(
            f"The columns of a stream must stay the same. Received: {columns}; the model was trained on "
            f"{last.columns}.",
            fix="Select the columns as before; or pass a new checkpoint folder, to train a new model.",
        )
