"""What the function of a node calls: the feed of its rows, and paths."""

import getpass
import itertools
import logging
from collections.abc import Iterable, Mapping
from queue import Empty
from typing import Any

from emberflow_compat import deadlines
from tensorflowonspark.feed_checks import unknown_queue
from tensorflowonspark.marker import Marker
from tensorflowonspark.node_queues import TERMINATING, ResultQueue, RowQueue
from tensorflowonspark.old_errors import DeprecatedError

logger = logging.getLogger(__name__)

SCHEMES = ("adl", "file", "hdfs", "oss", "s3", "s3a", "s3n", "swift", "viewfs", "wasb")
LATER_SCHEMES = ("abfs", "abfss", "dbfs", "gs", "wasbs")  # the old library made nonsense of them
HOMES = ("hdfs", "viewfs")  # file systems with a folder per user


def hdfs_path(ctx: Any, path: str) -> str:
    """Return the URL that a path means: with a scheme itself, without one against the default file system.

    Args:
        ctx: The node's context, for `defaultFS` and `working_dir`.
        path: Absolute or relative.
    """
    if path.startswith(tuple(f"{scheme}://" for scheme in SCHEMES + LATER_SCHEMES)):
        return path
    if path.startswith("/"):
        return f"{ctx.defaultFS}{path}"
    if ctx.defaultFS.startswith(tuple(f"{scheme}://" for scheme in HOMES)):
        return f"{ctx.defaultFS}/user/{getpass.getuser()}/{path}"
    if ctx.defaultFS.startswith("file://"):
        return f"{ctx.defaultFS}{ctx.working_dir}/{path}"
    logger.warning("A relative path on %s is taken from its root: %s", ctx.defaultFS, path)
    return f"{ctx.defaultFS}/{path}"


def start_cluster_server(ctx: Any, num_gpus: int = 1, rdma: bool = False) -> Any:  # noqa: ARG001 - as it was
    """Refuse: TensorFlow 2 starts its servers by tf.distribute."""
    raise DeprecatedError(
        "DEPRECATED: start_cluster_server is for TensorFlow 1. Received: a call with TensorFlow 2.",
        fix="Use a tf.distribute strategy, or tf.distribute.Server(ctx.cluster_spec, job_name=ctx.job_name, "
        "task_index=ctx.task_index).",
    )


def export_saved_model(sess: Any, export_dir: str, tag_set: str, signatures: Any) -> None:  # noqa: ARG001 - as it was
    """Refuse: TensorFlow 2 exports models, not sessions."""
    raise DeprecatedError(
        "DEPRECATED: export_saved_model is for sessions of TensorFlow 1. Received: a call with TensorFlow 2.",
        fix="Use compat.export_saved_model(model, export_dir, is_chief), or tf.saved_model.save.",
    )


def release_port(ctx: Any) -> None:
    """Close the socket that `release_port=False` has kept for TensorFlow's server."""
    ctx.release_port()


def next_batch(mgr: Any, batch_size: int, qname: str = "input") -> Any:  # noqa: ARG001 - as it was
    """Refuse: it is a method of `DataFeed`."""
    raise _use_data_feed("next_batch")


def batch_results(mgr: Any, results: Any, qname: str = "output") -> None:  # noqa: ARG001 - as it was
    """Refuse: it is a method of `DataFeed`."""
    raise _use_data_feed("batch_results")


def terminate(mgr: Any, qname: str = "input") -> None:  # noqa: ARG001 - as it was
    """Refuse: it is a method of `DataFeed`."""
    raise _use_data_feed("terminate")


def _use_data_feed(name: str) -> DeprecatedError:
    return DeprecatedError(
        f"DEPRECATED: Use TFNode.DataFeed class instead. Received: a call of TFNode.{name}.",
        fix=f"feed = ctx.get_data_feed(); feed.{name}(...)",
    )


class DataFeed:
    """The rows that `TFCluster.train` and `TFCluster.inference` bring to this node.

    Args:
        mgr: `ctx.mgr`, or a manager of `TFManager`.
        train_mode: False for inference: a batch ends with its partition.
        qname_in: The queue of rows.
        qname_out: The queue of results.
        input_mapping: Column to tensor: batches are then dicts of lists by tensor, and rows are read by position, in
            the order of the columns' names.

    Attributes:
        done_feeding: Whether the end of the feed was read.
    """

    def __init__(
        self,
        mgr: Any,
        train_mode: bool = True,
        qname_in: str = "input",
        qname_out: str = "output",
        input_mapping: Mapping[str, str] | None = None,
    ) -> None:
        self.mgr = mgr
        self.train_mode = train_mode
        self.qname_in = qname_in
        self.qname_out = qname_out
        self.done_feeding = False
        self.input_tensors = (
            [tensor for _, tensor in sorted(input_mapping.items())] if input_mapping is not None else None
        )
        self.queue_in = mgr.get_queue(qname_in)
        self.queue_out = mgr.get_queue(qname_out)

    def next_batch(self, batch_size: int) -> Any:
        """Wait for so many rows and return them; fewer or none at the end of the feed, or of a partition to infer on.

        Returns:
            A list of rows; with `input_mapping` a dict of lists by tensor.
        """
        rows: list[Any] = []
        while len(rows) < batch_size:
            taken = self._take(batch_size - len(rows))
            if taken is None:
                self.done_feeding = True
                break
            if isinstance(taken[0], Marker):
                if rows and not self.train_mode:
                    break
            elif rows:
                rows.extend(taken)
            else:
                rows = taken
        return rows if self.input_tensors is None else self._by_tensor(rows)

    def should_stop(self) -> bool:
        """Tell whether the end of the feed was read: the usual loop ends with one empty batch."""
        return self.done_feeding

    def batch_results(self, results: Iterable[Any]) -> None:
        """Give the results of a batch: over all calls one per row, in the order of the rows."""
        if isinstance(self.queue_out, ResultQueue):
            self.queue_out.give(results)
            return
        if self.queue_out is None:
            raise unknown_queue(self.qname_out)
        for result in results:
            self.queue_out.put(result, block=True)

    def terminate(self) -> None:
        """Take no more rows: those that wait, and all that still come to this node, are dropped."""
        self.mgr.set("state", TERMINATING)
        if not isinstance(self.queue_in, RowQueue):
            self._drain()

    def _take(self, most: int) -> list[Any] | None:
        if isinstance(self.queue_in, RowQueue):
            return self.queue_in.take(most)
        if self.queue_in is None:
            raise unknown_queue(self.qname_in)
        item = self.queue_in.get(block=True)
        self.queue_in.task_done()
        return None if item is None else [item]

    def _drain(self) -> None:
        """Empty a queue that another process fills, until it stays empty."""
        try:
            while True:
                self.queue_in.get(block=True, timeout=deadlines.QUIET_DRAIN)
                self.queue_in.task_done()
        except Empty:
            return

    def _by_tensor(self, rows: list[Any]) -> dict[str, list[Any]]:
        tensors = self.input_tensors or []
        if not rows:
            return {tensor: [] for tensor in tensors}
        columns = itertools.islice(zip(*rows, strict=False), len(tensors))
        return {tensor: list(column) for tensor, column in zip(tensors, columns, strict=True)}
