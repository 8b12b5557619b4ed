"""Watches the nodes while they are fed: ends the feed when nobody wants rows any more, and when nobody takes any."""

import secrets
import threading
import time
from types import TracebackType
from typing import Any, Self

import emberflow as ef
from emberflow.errors import EmberflowError, RunCancelledError
from emberflow_compat import deadlines
from tensorflowonspark.node_feeds import TERMINATED
from tensorflowonspark.old_errors import feed_timeout_error


def are_terminated(cluster: ef.Cluster, trainers: int) -> bool:
    """Tell whether so many nodes have called `terminate()`: all that are fed."""
    ranks = {metric.rank for metric in cluster.metrics if TERMINATED in metric.values}
    return len(ranks) >= trainers


def await_stream(ssc: Any, cluster: ef.Cluster, trainers: int) -> None:
    """Wait until a StreamingContext ends or no node takes rows any more; then stop it, but not the SparkContext."""
    is_graceful = False
    try:
        while not ssc.awaitTerminationOrTimeout(deadlines.STREAMING_POLL):
            if not cluster.is_up or are_terminated(cluster, trainers):
                is_graceful = cluster.is_up
                break
    finally:
        ssc.stop(stopSparkContext=False, stopGraceFully=is_graceful)


class FeedWatch:
    """A thread that looks at the nodes for as long as the block runs, in which one call feeds them.

    Args:
        cluster: The nodes.
        feed_timeout: Seconds without progress of a node that has rows.
        trainers: How many nodes are fed.
    """

    def __init__(self, cluster: ef.Cluster, feed_timeout: float, trainers: int) -> None:
        self._cluster = cluster
        self._feed_timeout = feed_timeout
        self._trainers = trainers
        self._tag = f"tensorflowonspark-{secrets.token_hex(4)}"
        self._is_left = threading.Event()
        self._are_all_terminated = False
        self._error: EmberflowError | None = None
        self._progress: dict[int, tuple[int, float]] = {}
        self._thread = threading.Thread(target=self._watch, name="tensorflowonspark-watch", daemon=True)

    def __enter__(self) -> Self:
        self._context.addJobTag(self._tag)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._is_left.set()
        self._thread.join()
        self._context.removeJobTag(self._tag)
        if self._error is not None and error is not None:
            raise self._error from error
        return self._are_all_terminated and isinstance(error, RunCancelledError)

    @property
    def _context(self) -> Any:
        return self._cluster.spark.sparkContext

    def _watch(self) -> None:
        while not self._is_left.wait(deadlines.FEED_WATCH_INTERVAL):
            if are_terminated(self._cluster, self._trainers):
                self._are_all_terminated = True
                self._context.cancelJobsWithTag(self._tag)
            elif late := self._late():
                self._error = feed_timeout_error(
                    self._feed_timeout, f"{late} took none of the rows that wait there"
                )
                self._cluster.__exit__(
                    type(self._error), self._error, None
                )  # ends the nodes, and so the call
                return

    def _late(self) -> str:
        """Return a node that has rows and has taken none for too long, or an empty text."""
        now = time.monotonic()
        for node in self._cluster.status():
            taken, since = self._progress.get(node.rank, (-1, now))
            if node.rows_taken != taken or not node.rows_waiting:
                self._progress[node.rank] = (node.rows_taken, now)
            elif now - since > self._feed_timeout:
                return f"{node.role} {node.index} on {node.host}"
        return ""
