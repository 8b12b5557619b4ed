"""A TensorFlow cluster on Spark's executors: start it, feed it, ask it, shut it down."""

import functools
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import emberflow as ef
from emberflow_compat import deadlines
from emberflow_compat.classic_sessions import check_context
from emberflow_compat.keras_choice import choice_for_nodes
from tensorflowonspark.cluster_facts import (
    gpu_options,
    meta_of,
    node_infos,
    session_of,
    warn_of_old_ports,
    with_tensorboard,
)
from tensorflowonspark.feed_checks import InputMode, check_mode, check_rdd, too_late, unknown_queue
from tensorflowonspark.feed_watch import FeedWatch, are_terminated, await_stream
from tensorflowonspark.node_feeds import COLUMNS
from tensorflowonspark.node_program import NodeProgram
from tensorflowonspark.node_roles import Layout, layout_of
from tensorflowonspark.old_errors import UsageError, executors_named, worker_errors
from tensorflowonspark.row_chunks import chunks_to_ask, chunks_to_train, results_in

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import DataFrame

__all__ = ["InputMode", "StopState", "TFCluster", "run"]

logger = logging.getLogger(__name__)

EPOCHS_BY_DEFAULT = 10  # what num_epochs=0 means
ASKED_SCHEMA = "rows binary, feed_timeout double"


class StopState:
    """What `cluster.server` is for: `done` tells whether the nodes want no more rows."""

    def __init__(self, is_done: Callable[[], bool]) -> None:
        self._is_done = is_done

    @property
    def done(self) -> bool:
        """Whether every node that is fed has terminated its feed."""
        return self._is_done()


class TFCluster:
    """A cluster that is up, from `run` to `shutdown`.

    Attributes:
        sc: The SparkContext.
        cluster_meta: What is known of all; `meta` is the same.
        input_mode: An InputMode.
        queues: The names of queues.
        server: `server.done` tells whether the nodes want no more rows.
    """

    sc: "SparkContext | None" = None
    defaultFS: str | None = None
    working_dir: str | None = None
    num_executors: int | None = None
    nodeRDD: Any = None
    cluster_id: int | None = None
    cluster_meta: dict[str, Any] | None = None
    meta: dict[str, Any] | None = None
    input_mode: int | None = None
    queues: Sequence[str] | None = None
    server: Any = None

    def __init__(
        self,
        cluster: ef.Cluster,
        layout: Layout,
        input_mode: int,
        queues: Sequence[str],
        *,
        has_tensorboard: bool = False,
    ) -> None:
        self._cluster = cluster
        self._layout = layout
        self._has_tensorboard = has_tensorboard
        self._nodes = node_infos(cluster, layout)
        self._is_shut_down = False
        self.input_mode = input_mode
        self.queues = queues
        self.server = StopState(self._is_terminated)

    @property
    def cluster_info(self) -> list[dict[str, Any]]:
        """A dict per node: `executor_id`, `host`, `job_name`, `task_index`, `port` and others."""
        chief = self._layout.executor_id("chief", 0)
        return with_tensorboard(self._nodes, chief, self._cluster.tensorboard_url)

    def train(
        self,
        dataRDD: Any,
        num_epochs: int = 0,
        feed_timeout: int = deadlines.FEED_TIMEOUT,
        qname: str = "input",
    ) -> None:
        """Feed the nodes with the rows of an RDD or DStream.

        Args:
            dataRDD: The rows. A DStream is fed as its batches come, after `ssc.start()`.
            num_epochs: How often; 0 means 10.
            feed_timeout: Seconds after which rows that wait on a node, of which it takes none, are an error.
            qname: The queue.

        Raises:
            UsageError: The cluster reads its own rows, or has no such queue; an AssertionError, as ever.
            WorkerError: Your function raised on a node.
            FeedTimeoutError: A node takes no rows.
        """
        self._check_fed("train", qname, dataRDD)
        if num_epochs < 0:
            raise UsageError(
                f"num_epochs cannot be negative. Received: num_epochs={num_epochs}.", fix="Pass num_epochs=1."
            )
        if hasattr(type(dataRDD), "foreachRDD"):
            dataRDD.foreachRDD(lambda rdd: self._feed(rdd, feed_timeout, qname))
            return
        for _ in range(num_epochs or EPOCHS_BY_DEFAULT):
            self._feed(dataRDD, feed_timeout, qname)

    def train_frame(self, frame: "DataFrame", num_epochs: int, qname: str = "input") -> None:
        """Feed the nodes with a DataFrame: rows are tuples of its columns, and travel as Arrow."""
        self._check_fed("train", qname)
        for _ in range(num_epochs):
            self._bring(frame, deadlines.FEED_TIMEOUT, qname + COLUMNS)

    def inference(
        self, dataRDD: "RDD[Any]", feed_timeout: int = deadlines.FEED_TIMEOUT, qname: str = "input"
    ) -> "RDD[Any]":
        """Return a lazy RDD of results, one per row, in the order of the rows.

        Args:
            dataRDD: The rows.
            feed_timeout: Seconds after which a node that gives no more results is an error.
            qname: The queue of rows; results are those of the queue "output".
        """
        self._check_fed("inference", qname, dataRDD)
        chunks = dataRDD.mapPartitions(functools.partial(chunks_to_ask, feed_timeout=float(feed_timeout)))
        frame = self._cluster.spark.createDataFrame(chunks, ASKED_SCHEMA, verifySchema=False)
        with worker_errors():
            asked = self._cluster.infer(frame, schema="results binary", name=qname)
        return asked.select("results").rdd.flatMap(results_in)  # type: ignore[no-any-return]

    def shutdown(
        self, ssc: Any = None, grace_secs: int = 0, timeout: int = deadlines.SHUTDOWN_TIMEOUT
    ) -> None:
        """End the feeds, wait until your function has returned on all nodes, and end the nodes.

        Args:
            ssc: A StreamingContext to wait for first; it is stopped when the nodes want no more rows.
            grace_secs: Not needed: your function is waited for, however long it exports.
            timeout: Seconds until it must have returned; -1: without limit.

        Raises:
            WorkerError: Your function raised on a node, also after the last row.
        """
        del grace_secs
        self._is_shut_down = True
        with worker_errors():
            try:
                if ssc is not None:
                    await_stream(ssc, self._cluster, self._layout.trainers)
            finally:  # a node that failed is why its batch has; the node's own error is raised
                self._cluster.stop(timeout if timeout > 0 else deadlines.UNLIMITED_TIMEOUT)

    def tensorboard_url(self) -> str | None:
        """Return the address of TensorBoard, once it serves; None if it was not asked for, or does not start."""
        deadline = time.monotonic() + deadlines.TENSORBOARD_TIMEOUT
        waiting = threading.Event()
        while self._has_tensorboard and self._cluster.tensorboard_url is None and self._cluster.is_up:
            if time.monotonic() > deadline:
                break
            waiting.wait(deadlines.TENSORBOARD_POLL)
        return self._cluster.tensorboard_url

    def _check_fed(self, call: str, qname: str, rows: Any = None) -> None:
        check_mode(call, self.input_mode)
        if rows is not None:
            check_rdd(call, rows)
        if self._is_shut_down:
            raise too_late(call)
        if qname not in (self.queues or ()):
            raise unknown_queue(qname)

    def _feed(self, rdd: "RDD[Any]", feed_timeout: float, qname: str) -> None:
        if rdd.getNumPartitions():  # a batch of a DStream may have none
            import pyarrow as pa

            # Without it Emberflow would compute the first chunks twice.
            schema = pa.schema([("value", pa.binary())])
            self._bring(rdd.mapPartitions(chunks_to_train), feed_timeout, qname, schema)

    def _bring(self, data: Any, feed_timeout: float, name: str, schema: Any = None) -> None:
        """Feed the nodes once; not at all where none of them takes rows any more."""
        if self._cluster.is_up and self._is_terminated():
            return
        watch = FeedWatch(self._cluster, feed_timeout, self._layout.trainers)
        with worker_errors(), watch:
            self._cluster.train(data, name=name, schema=schema)

    def _is_terminated(self) -> bool:
        return are_terminated(self._cluster, self._layout.trainers)


def run(
    sc: "SparkContext",
    map_fun: Callable[[Any, Any], Any],
    tf_args: Any,
    num_executors: int,
    num_ps: int,
    tensorboard: bool = False,
    input_mode: int = InputMode.TENSORFLOW,
    log_dir: str | None = None,
    driver_ps_nodes: bool = False,
    master_node: str | None = None,
    reservation_timeout: int = deadlines.RESERVATION_TIMEOUT,
    queues: list[str] = ["input", "output", "error"],  # noqa: B006 - the old default; it is never changed
    eval_node: bool = False,
    release_port: bool = True,
) -> TFCluster:
    """Start a TensorFlow cluster on Spark's executors, and return when all nodes are up.

    Args:
        sc: The SparkContext.
        map_fun: Your function, called as ``map_fun(tf_args, ctx)`` on each node.
        tf_args: Anything that can be pickled; a list is also the `sys.argv` of each node.
        num_executors: How many nodes in all.
        num_ps: How many of them are parameter servers.
        tensorboard: Whether to start TensorBoard.
        input_mode: InputMode.SPARK to be fed, InputMode.TENSORFLOW to read rows yourself.
        log_dir: The folder that TensorBoard shows.
        driver_ps_nodes: Parameter servers run on executors in any case.
        master_node: The job name of one node that leads, "chief" or "master".
        reservation_timeout: Seconds until all nodes must be up.
        queues: Names of queues.
        eval_node: Whether one node is an evaluator.
        release_port: False: `ctx.release_port()` is called by your function.
    """
    check_context(sc, "TFCluster.run", native="ef.cluster(fn, workers=n)")
    for name, is_wanted in (("driver_ps_nodes", driver_ps_nodes), ("eval_node", eval_node)):
        if is_wanted and input_mode != InputMode.TENSORFLOW:
            raise UsageError(
                f"{name} is only supported in InputMode.TENSORFLOW. Received: {name}=True, input_mode={input_mode}.",
                fix=f"Leave out {name}, or pass input_mode=TFCluster.InputMode.TENSORFLOW.",
            )
    layout = layout_of(num_executors, num_ps, master_node, eval_node)
    meta = meta_of(sc, layout, num_executors, release_port)
    warn_of_old_ports(sc)
    program = NodeProgram(
        keras=choice_for_nodes(),
        layout=layout,
        default_fs=meta["default_fs"],
        working_dir=meta["working_dir"],
        queues=tuple(queues),
        is_fed=input_mode == InputMode.SPARK,
        keeps_port=not release_port,
        tf_args=tf_args,
        map_fun=map_fun,
    )
    with worker_errors(), executors_named(layout.ps + layout.evaluator):
        started = ef.cluster(
            program,
            workers=layout.trainers,
            ps=layout.ps,
            evaluator=layout.evaluator,
            transport="none",
            tensorboard=(log_dir or f"file://{meta['working_dir']}/tensorboard_{num_ps}")
            if tensorboard
            else None,
            spark=session_of(sc),
            start_timeout=reservation_timeout,
            driver_host=os.environ.get("TFOS_SERVER_HOST") or None,
            verbose=False,
            **gpu_options(sc, tf_args),
        )
    cluster = TFCluster(started, layout, input_mode, queues, has_tensorboard=tensorboard)
    cluster.sc = sc
    cluster.nodeRDD = sc.parallelize(range(num_executors), num_executors)
    cluster.meta = cluster.cluster_meta = meta
    for node in cluster.cluster_info:
        logger.info("node: %s", node)
    return cluster
