"""`ef.cluster`: nodes that stay up, and are fed, asked and stopped by later calls."""

import dataclasses
import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from emberflow._choices import GpuSource, Strategy, TransportChoice
from emberflow._names import names_checked
from emberflow.config import STOP_TIMEOUT, Count, RunConfig, check_count, check_seconds
from emberflow.errors import ConfigError, EmberflowError
from emberflow.result import FeedResult, Metric, Result

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from emberflow._driver.cluster_facts import ClusterFacts
    from emberflow._driver.live_feeding import LiveFeeding
    from emberflow._driver.live_run import LiveRun
    from emberflow._driver.stream_training import NodesModel, Publisher
    from emberflow._node.context import Context
    from emberflow._task.warm_start import WarmAccess


@names_checked
def cluster(
    fn: "Callable[[Context], Any] | None" = None,
    *,
    workers: Count,
    ps: Count = 0,
    evaluator: bool = False,
    gpus: int = 0,
    gpu_source: GpuSource = "spark",
    gpu_resource: str | None = None,
    transport: TransportChoice = "auto",
    strategy: Strategy = "data_parallel",
    tensorboard: str | None = None,
    tensorboard_host: str = "127.0.0.1",
    checkpoint_dir: str | None = None,
    max_restarts: int = 0,
    restart_on_error: bool = False,
    spool_dir: str | None = None,
    spool_limit: int | None = None,
    spark: "SparkSession | None" = None,
    start_timeout: float = 120.0,
    executor_timeout: float = 5.0,
    join_timeout: float = 60.0,
    exchange_timeout: float = 600.0,
    evaluator_timeout: float = 60.0,
    verbose: bool = True,
    encrypt: bool = False,
    allow_unencrypted: bool = False,
    driver_host: str | None = None,
    port_range: str | None = None,
) -> "Cluster":
    """Start nodes that stay up until they are stopped, and feed them with one DataFrame after the other.

    The stage that starts the nodes ends when all are up, so that its slots are free for your other jobs, also on
    executors of one core. A node never outlives its executor, the Spark application or this process. Use it as a
    context manager, or call `Cluster.stop`.

    Args:
        fn: Your function, called as ``fn(ctx)`` in every node. It takes what you feed from ``ctx.rounds()``,
            ``ctx.stream()`` or ``ctx.requests()``, and returns when these end. Without it the cluster is idle: for
            ``ef.run(other, cluster=cluster)`` and ``KerasEstimator(cluster=cluster)``, whose nodes then start with
            TensorFlow imported already, on the GPUs of the cluster.
        workers: How many nodes train, the chief included; "auto": every slot that Spark offers.
        ps: Parameter servers in addition to the workers, without GPUs; "auto" reads NUM_TF_PS from Spark's executor
            environment.
        evaluator: Start one more node that evaluates while the others train.
        gpus: GPUs of each worker, its own, assigned by Spark's scheduler and held until the cluster is stopped.
        gpu_source: "nvml": nodes select free GPUs of their host, where Spark manages none.
        gpu_resource: Spark's name for its GPUs, if neither "gpu" nor the setting spark.emberflow.gpuResource.
        transport: How ``ctx.distribute`` exchanges gradients; see `emberflow.run`.
        strategy: How the nodes train together; see `emberflow.run`.
        tensorboard: Folder of event files that TensorBoard shows; it runs on the chief's host.
        tensorboard_host: The interface that TensorBoard listens on.
        checkpoint_dir: Storage that all nodes share, for ``ctx.save_checkpoint``; kept afterwards.
        max_restarts: How often all nodes may be restarted after a lost node. A call that was interrupted is then
            fed again from its first row, to your function, which begins anew from its last checkpoint.
        restart_on_error: Restart after an exception of your function too.
        spool_dir: Local folder for the rows of a round; Spark's own if left out.
        spool_limit: Most bytes of one worker's rows there.
        spark: The session; the active one if left out. Classic, or Spark Connect where executors reach this process.
        start_timeout: Seconds until all nodes must have joined.
        executor_timeout: Seconds in which all executors must register after the first one, within `start_timeout`.
        join_timeout: Seconds until nodes that train together must have connected to each other.
        exchange_timeout: Seconds after which a node that does not answer another during training is an error.
        evaluator_timeout: Seconds for a last evaluation after training is done.
        verbose: Show progress and the nodes' output on the driver.
        encrypt: Encrypt everything that driver, feeding tasks and nodes send each other; always so where Spark
            encrypts its traffic.
        allow_unencrypted: Let TensorFlow's own servers run where everything else is encrypted; they cannot encrypt.
        driver_host: The address at which executors reach this process, if not the one that Spark uses.
        port_range: Ports that this process and the nodes may listen on, such as "30000-30100", for firewalls; by
            default Spark's setting spark.emberflow.portRange, or any free ports.

    Returns:
        The cluster, with all nodes up.

    Raises:
        ConfigError: The arguments are wrong, or the function cannot be pickled.
        ClusterError: Spark has too few slots for the nodes, they did not join in time, or cannot reach this process.
        NodeFailedError: Your function raised before all nodes were up.

    Example:
        >>> def learn(ctx):
        ...     model = ctx.distribute(build_model())
        ...     for round in ctx.rounds():
        ...         model.fit(round.dataset(features="x", label="y", batch_size=64))
        >>> with ef.cluster(learn, workers=2) as cluster:  # doctest: +SKIP
        ...     cluster.train(monday)
        ...     cluster.train(tuesday, epochs=2)
    """
    from emberflow._driver.cluster_facts import active_session, check_facts, read_facts
    from emberflow._driver.paths import with_resolved_paths
    from emberflow._node.idle import stay_idle

    config = RunConfig(
        workers=workers,
        ps=ps,
        evaluator=evaluator,
        gpus=gpus,
        gpu_source=gpu_source,
        gpu_resource=gpu_resource,
        transport=transport,
        strategy=strategy,
        tensorboard=tensorboard,
        tensorboard_host=tensorboard_host,
        checkpoint_dir=checkpoint_dir,
        max_restarts=max_restarts,
        restart_on_error=restart_on_error,
        spool_dir=spool_dir,
        spool_limit=spool_limit,
        start_timeout=start_timeout,
        executor_timeout=executor_timeout,
        join_timeout=join_timeout,
        exchange_timeout=exchange_timeout,
        evaluator_timeout=evaluator_timeout,
        verbose=verbose,
        encrypt=encrypt,
        allow_unencrypted=allow_unencrypted,
        driver_host=driver_host,
        port_range=port_range,
    )
    if fn is None:
        config = _idle(config)
    session = spark or active_session()
    config = with_resolved_paths(session, config)
    facts = read_facts(session, config.gpu_resource)
    check_facts(facts, config)
    return Cluster(_started(session, fn or stay_idle, config, facts), session, is_idle=fn is None)


def _idle(config: RunConfig) -> RunConfig:
    """Return the options of a cluster that only keeps TensorFlow and GPUs at hand; helpers are refused."""
    if config.ps or config.evaluator:
        raise ConfigError(
            "An idle cluster has workers only: each run says what it needs beside them. "
            f"Received: ps={config.ps}, evaluator={config.evaluator}.",
            fix="Pass these to ef.run(fn, cluster=cluster, ...) instead.",
        )
    # Its nodes exchange nothing; TensorFlow's collectives would take the GPUs' memory, which is for its runs.
    return dataclasses.replace(config, transport="none")


def _started(
    spark: "SparkSession", fn: "Callable[[Context], Any]", config: RunConfig, facts: "ClusterFacts"
) -> "LiveRun":
    """Return the run with all nodes up."""
    from emberflow._driver.live_run import LiveRun
    from emberflow._driver.row_routing import RunData, data_spec
    from emberflow._driver.run_plan import make_plan
    from emberflow._driver.shipping import shipment_of
    from emberflow._driver.slots import place_nodes
    from emberflow._driver.supervisor import Program

    data = RunData()
    nodes = place_nodes(spark, config, facts)
    plan = make_plan(config, facts, nodes, is_live=True)
    program = Program(
        fn=shipment_of(fn, is_connect=facts.is_connect),
        data=data,
        spec=data_spec(data, config),
    )
    run = LiveRun(spark, program, plan, config, facts)
    run.start()
    return run


@dataclass(frozen=True, kw_only=True)
class NodeStatus:
    """One node of a live cluster at one moment.

    Attributes:
        rank: Its global number.
        role: chief, worker, ps or evaluator.
        index: Its number within its role.
        host: Where it runs.
        state: "waiting" for its task, "starting", "up", "returned", or how it ended.
        log_tail: The last lines that it printed.
        rows_taken: Rows that your function has taken so far; of rounds those of complete epochs.
        rows_waiting: Rows that are on the node for it to take.
        rows_per_second: How many it has taken per second in the last seconds.
        tasks_held: Feeding tasks that wait until it takes more of a stream: it holds as many rows as it may.
    """

    rank: int
    role: str
    index: int
    host: str
    state: str
    log_tail: tuple[str, ...] = ()
    rows_taken: int = 0
    rows_waiting: int = 0
    rows_per_second: float = 0.0
    tasks_held: int = 0

    def _rows(self) -> str:
        """Return the rows in words.

        >>> node = NodeStatus(rank=0, role="chief", index=0, host="h", state="up", rows_taken=1200, rows_waiting=7)
        >>> node._rows()
        '1,200 rows taken, 7 waiting, 0 per second'
        """
        taken, waiting = f"{self.rows_taken:,}", f"{self.rows_waiting:,}"
        held = f", {self.tasks_held} feeding tasks wait for it" if self.tasks_held else ""
        return f"{taken} rows taken, {waiting} waiting, {self.rows_per_second:,.0f} per second{held}"


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

    def train(self, data: Any, *, epochs: int = 1, name: str = "train") -> FeedResult:
        """Feed the nodes, and return when they have trained on all of it.

        A function that takes *rounds* gets the rows of all nodes at once, each row exactly once per epoch; one that
        takes a *stream* gets them as they come.

        Args:
            data: A DataFrame; an RDD of rows, tuples, dicts or numbers; or, for rounds, a dict of these by name.
            epochs: How often the rows are trained on.
            name: The name under which your function finds the data.

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
        result: FeedResult = self._through(lambda feeding: feeding.train(data, epochs, name))
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
            )
            for node, seen in zip(self._run.plan.nodes, snapshots, strict=False)
        )

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
        return tuple(attempt.metrics.items()) if attempt is not None else ()

    @property
    def tensorboard_url(self) -> str | None:
        """The address of TensorBoard, or None."""
        attempt = self._run.attempt
        return attempt.tensorboard_url if attempt is not None else None

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
            f"{node.role} {node.index}: {node.state}, {node._rows()}"  # noqa: SLF001 - a class of this file
            for node in self.status()
        )
        return f"<emberflow.Cluster {self._run.plan.run_id} ({states})>"

    def _repr_html_(self) -> str:
        """Show the nodes as a table in notebooks."""
        rows = "".join(
            f"<tr><td>{node.rank}</td><td>{node.role} {node.index}</td><td>{html.escape(node.host)}</td>"
            f"<td>{node.state}</td><td>{node.rows_taken:,}</td><td>{node.rows_waiting:,}</td>"
            f"<td>{node.rows_per_second:,.0f}</td><td>{node.tasks_held}</td>"
            f"<td><code>{html.escape(' '.join(node.log_tail[-1:]))}</code></td></tr>"
            for node in self.status()
        )
        head = "<tr><th>rank</th><th>node</th><th>host</th><th>state</th><th>rows taken</th><th>waiting</th>"
        head += "<th>per second</th><th>tasks that wait for it</th><th>last line</th></tr>"
        return f"<table>{head}{rows}</table>"

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
