"""What `ef.cluster` returns: nodes that are fed, asked and stopped."""

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from emberflow._choices import GpuSource
from emberflow.config import STOP_TIMEOUT, check_count, check_seconds
from emberflow.errors import ConfigError, EmberflowError
from emberflow.result import FeedResult, Metric, NodeStatus, Result

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from emberflow._driver.live_feeding import LiveFeeding
    from emberflow._driver.live_run import LiveRun
    from emberflow._driver.stream_training import NodesModel, Publisher
    from emberflow._task.warm_start import WarmAccess


class Cluster:
    """Nodes that are up until `stop`; made by `emberflow.cluster`.

    Attributes:
        spark: Its session.
    """

    def __init__(self, run: "LiveRun", spark: "SparkSession", *, is_idle: bool = False) -> None:
        self._run = run
        self._model: NodesModel | None = None
        self._is_idle = is_idle
        self.spark = spark

    def train(self, data: Any, *, epochs: int = 1, name: str = "train", schema: Any = None) -> FeedResult:
        """Feed the nodes, and return when they have trained on all of it.

        A function that takes *rounds* gets the rows of all nodes at once, each row exactly once per epoch; one that
        takes a *stream* gets them as they come.

        Args:
            data: A DataFrame; an RDD of rows, tuples, dicts or numbers; or, for rounds, a dict of these by name.
            epochs: How often the rows are trained on.
            name: The name under which your function finds the data.
            schema: The pyarrow.Schema of an RDD's rows; if left out, its first hundred rows are computed to learn it.

        Returns:
            How many rows were fed, and in which time.

        Raises:
            ClusterError: The cluster is over.
            ConfigError: Your function takes no feed of this name.
            DataError: There are no rows, their columns are not those of the calls before, or Spark cannot compute
                them.
            NodeError: A node failed or was lost; its own traceback is in the message.
            RunCancelledError: The Spark job that brings the rows was cancelled; the cluster stays up.
        """
        self._check_fed()
        result: FeedResult = self._through(lambda feeding: feeding.train(data, epochs, name, schema=schema))
        return result

    def train_stream(
        self,
        stream: "DataFrame",
        *,
        checkpoint: str,
        epochs: int = 1,
        name: str = "train",
        trigger: Mapping[str, Any] | None = None,
        query_name: str | None = None,
    ) -> "StreamingQuery":
        """Train on a streaming DataFrame: each micro-batch is a round, and each row is trained on exactly once.

        Your function must take rounds, begin with ``round.checkpoint`` where it is not None, and end each round with
        ``round.save_checkpoint(write)``. What it stores counts together with the micro-batch, before Spark is told
        that the micro-batch is done. So the query, this program or both can be started again with the same
        `checkpoint`: a micro-batch that is stored is skipped, and the next one goes on from its model. If two
        programs use one checkpoint, the later one wins, and the earlier one fails at its next micro-batch.

        Args:
            stream: The streaming DataFrame; of a classic session, since Spark Connect runs it elsewhere.
            checkpoint: Storage that driver and nodes share, for the query and the model; one folder per stream.
            epochs: How often each micro-batch is trained on.
            name: The name under which your function finds the rows.
            trigger: Arguments of Spark's ``trigger``: {"processingTime": "1 minute"}, {"availableNow": True}.
            query_name: The query's name in Spark's UI.

        Returns:
            Spark's streaming query: ``awaitTermination()`` waits, and raises what failed; ``stop()`` ends it after
            the micro-batch that is being trained on. The cluster stays up.

        Raises:
            ClusterError: The cluster is over.
            ConfigError: It is no stream, or a session of Spark Connect.
        """
        self._check_fed()
        return self._start_stream(
            stream, checkpoint, epochs=epochs, name=name, trigger=trigger, query_name=query_name
        )

    def infer(self, data: Any, *, schema: Any = None, name: str = "infer") -> Any:
        """Return what your function replies to the rows: for a DataFrame its columns and those of the replies.

        The result is lazy, as every DataFrame is: nodes are asked when it is computed, and each time it is. Every row
        has its own result, also when Spark runs a task again.

        Args:
            data: A DataFrame; or an RDD, for an RDD of results.
            schema: The columns of the replies to a DataFrame, such as "prediction double, label long"; if left out,
                one row is asked for now.
            name: The name under which your function takes requests.

        Returns:
            A DataFrame with the columns of `data` and then those of the replies; or an RDD of the replies alone: a
            value where they have one column, else a dict.

        Raises:
            ClusterError: The cluster is over.
            ConfigError: Your function takes no requests of this name.
            DataError: There are no rows to ask for, or the reply to the first does not have one row.
            NodeError: A node failed or was lost. What fails later is raised by the Spark job that computes the
                result, with the same text.
        """
        self._check_fed()
        return self._through(lambda feeding: feeding.infer(data, schema, name))

    def status(self) -> tuple[NodeStatus, ...]:
        """Return what is known of each node now; its rows are those of up to a second ago."""
        attempt = self._run.attempt
        snapshots = attempt.nodes() if attempt is not None else ()
        return tuple(
            NodeStatus(
                rank=node.rank,
                role=node.role,
                index=node.index,
                host=seen.host,
                state=seen.state,
                log_tail=seen.log_tail,
                rows_taken=seen.rows_taken,
                rows_waiting=seen.rows_waiting,
                rows_per_second=seen.rows_per_second,
                tasks_held=seen.tasks_held,
                address=seen.address,
            )
            for node, seen in zip(self._run.plan.nodes, snapshots, strict=False)
        )

    def page(self, port: int = 0) -> str:
        """Serve the page of the cluster in a browser until it is stopped: curves, nodes, rows, output.

        Args:
            port: The port on this machine's loopback; any free one if left out.

        Returns:
            Its address, with a token; it is printed, and opened where there is a desktop.

        Raises:
            ClusterError: The cluster is over.
            ConfigError: The port is taken, or the packages of ``pip install 'emberflow[page]'`` are missing.
        """
        from emberflow.page.opening import announce

        url = self._run.page(port)
        announce(url)
        return url

    @property
    def workers(self) -> int:
        """How many nodes train, the chief included."""
        return sum(node.trains for node in self._run.plan.nodes)

    @property
    def gpus(self) -> int:
        """How many GPUs each worker holds until the cluster is stopped; those of an idle cluster are for its runs."""
        return self._run.config.gpus

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What nodes have reported so far by ``ctx.report``, in order of arrival."""
        attempt = self._run.attempt
        return tuple(attempt.reports.metrics.items()) if attempt is not None else ()

    @property
    def tensorboard_url(self) -> str | None:
        """The address of TensorBoard, or None."""
        attempt = self._run.attempt
        return attempt.reports.tensorboard_url if attempt is not None else None

    @property
    def is_up(self) -> bool:
        """Whether the cluster can be fed; False once it is stopped or lost."""
        return not self._run.is_over

    def stop(self, timeout: float = STOP_TIMEOUT) -> Result:
        """Let the feeds end, wait until your function has returned everywhere, and end all nodes.

        Args:
            timeout: Seconds until it must have returned; then the nodes are ended, with an error.

        Returns:
            What your function returned, as of `emberflow.run`; the same when called again.

        Raises:
            ClusterError: Your function did not return in time.
            NodeError: A node failed or was lost, now or before.
        """
        check_seconds("timeout", timeout, STOP_TIMEOUT)
        return self._run.stop(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        else:
            self._run.stop_now()

    def __repr__(self) -> str:
        states = "; ".join(
            f"{node.role} {node.index}: {node.state}, {node.rows_in_words()}" for node in self.status()
        )
        return f"<emberflow.Cluster {self._run.plan.run_id} ({states})>"

    def _repr_html_(self) -> str:
        """Show the nodes and their curves in notebooks."""
        from emberflow.page.cluster_cell import cluster_html

        nodes = self.status()
        with self._run.recorder.looking() as state:
            return cluster_html(state, nodes, is_up=self.is_up)

    def _start_stream(
        self,
        stream: "DataFrame",
        checkpoint: str,
        *,
        epochs: int,
        trigger: Mapping[str, Any] | None,
        query_name: str | None,
        name: str = "train",
        publisher: "Publisher | None" = None,
    ) -> "StreamingQuery":
        """Start the query of a stream; see `train_stream`."""
        from emberflow._driver.interpreter import is_connect
        from emberflow._driver.paths import resolve_path
        from emberflow._driver.stream_training import NodesModel, StreamTraining, check_stream, start_query

        check_count("epochs", epochs)
        check_stream(stream, checkpoint, is_connect=is_connect(stream.sparkSession))
        self._run.feeding()  # raises if the cluster is over
        self._model = self._model or NodesModel()
        folder = resolve_path(stream.sparkSession, checkpoint)
        training = StreamTraining(
            folder, self._through, self._model, name=name, epochs=epochs, publisher=publisher
        )
        return start_query(stream, training, folder, trigger=trigger, query_name=query_name)

    def _gpu_options(self, gpus: int) -> "tuple[int, GpuSource, str | None]":
        """Return how a run on this idle cluster, which has GPUs, asks for them."""
        config = self._run.config
        if gpus not in (0, config.gpus):
            raise ConfigError(
                "A run on an idle cluster with GPUs has the GPUs of that cluster. Received: "
                f"gpus={gpus}; the cluster has gpus={config.gpus}.",
                fix=f"Leave out gpus, or start the cluster with gpus={gpus}.",
            )
        return config.gpus, config.gpu_source, config.gpu_resource

    def _warm_access(self) -> "WarmAccess":
        """Return the processes from which the nodes of a run are forked."""
        if not self._is_idle:
            raise ConfigError(
                "`cluster` must be idle: its nodes run no function of their own. Received: a cluster with one.",
                fix="Start it without a function: ef.cluster(workers=2).",
            )
        access: WarmAccess = self._through(lambda feeding: feeding.warm_access())
        return access

    def _check_fed(self) -> None:
        if self._is_idle:
            raise ConfigError(
                "A cluster is fed through its function. Received: an idle cluster, which has none.",
                fix="Pass a function: ef.cluster(fn, workers=2); or ef.run(fn, data=df, cluster=cluster).",
            )

    def _through(self, call: "Callable[[LiveFeeding], Any]") -> Any:
        """Make a call to the nodes; when they were lost meanwhile and start again, make it again."""
        feeding: LiveFeeding | None = None
        while True:
            feeding = self._run.feeding(but_not=feeding)
            try:
                return call(feeding)
            except EmberflowError:
                if not feeding.has_failed:
                    raise
