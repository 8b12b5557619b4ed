"""Tasks that feed nodes which a program has started by `TFSparkNode.run` itself, on one machine."""

import threading
from collections.abc import Callable, Iterable
from typing import Any

from emberflow_compat import deadlines
from tensorflowonspark import TFManager, marker, util
from tensorflowonspark.node_queues import STOPPED, TERMINATING
from tensorflowonspark.old_errors import StandaloneNodeError, feed_timeout_error

Info = dict[str, Any]


def _get_manager(cluster_info: list[Info], host: str, executor_id: int) -> Any:
    """Return a connection to the manager of the node on this executor."""
    del host  # such nodes are on one machine
    for node in cluster_info:
        if node["executor_id"] == executor_id:
            return TFManager.connect(node["addr"], node["authkey"])
    raise StandaloneNodeError(
        f"No TFManager found on this node. Received: executor_id={executor_id}, "
        f"nodes={[node['executor_id'] for node in cluster_info]}.",
        fix="Start one node per executor, or use TFCluster.run, which needs no such agreement.",
    )


def train(
    cluster_info: list[Info],
    cluster_meta: Info,
    feed_timeout: int = deadlines.FEED_TIMEOUT,
    qname: str = "input",
) -> Callable[[Iterable[Any]], list[bool]]:
    """Return a function for `mapPartitions` that feeds the node of its executor, and tells whether it terminates."""
    del cluster_meta

    def _train(iterator: Iterable[Any]) -> list[bool]:
        mgr = _get_manager(cluster_info, "", util.read_executor_id())
        if not _is_in(mgr, TERMINATING):
            _put_all(mgr, qname, iterator, feed_timeout)
        return [_is_in(mgr, TERMINATING)]

    return _train


def inference(
    cluster_info: list[Info], feed_timeout: int = deadlines.FEED_TIMEOUT, qname: str = "input"
) -> Callable[[Iterable[Any]], list[Any]]:
    """Return a function for `mapPartitions` that feeds the node of its executor, and returns a result per row."""

    def _inference(iterator: Iterable[Any]) -> list[Any]:
        mgr = _get_manager(cluster_info, "", util.read_executor_id())
        count = _put_all(mgr, qname, iterator, feed_timeout, marker.EndPartition())
        results = mgr.get_queue("output")
        return [results.get(block=True, timeout=feed_timeout) for _ in range(count)]

    return _inference


def shutdown(
    cluster_info: list[Info], grace_secs: int = 0, queues: Iterable[str] = ("input",)
) -> Callable[[Iterable[Any]], list[bool]]:
    """Return a function for `mapPartitions` that ends the feed of the node of its executor."""

    def _shutdown(_: Iterable[Any]) -> list[bool]:
        mgr = _get_manager(cluster_info, "", util.read_executor_id())
        for name in queues:
            if name != "error":
                mgr.get_queue(name).put(None)
        threading.Event().wait(grace_secs)
        _check_error(mgr)
        mgr.set("state", STOPPED)
        return [True]

    return _shutdown


def _is_in(mgr: Any, state: str) -> bool:
    return str(mgr.get("state")) == repr(state)


def _put_all(mgr: Any, qname: str, rows: Iterable[Any], feed_timeout: float, *last: Any) -> int:
    """Put rows on a queue, wait until they are taken, and return how many there were."""
    queue = mgr.get_queue(qname)
    count = 0
    for count, row in enumerate(rows, 1):  # noqa: B007 - the number of rows
        queue.put(row)
    for each in last:
        queue.put(each)
    waiting = threading.Thread(target=queue.join, daemon=True)
    waiting.start()
    left = float(feed_timeout)
    while waiting.is_alive():
        _check_error(mgr)
        if left <= 0:
            raise feed_timeout_error(feed_timeout, "rows were not taken")
        waiting.join(deadlines.RESERVATION_POLL)
        left -= deadlines.RESERVATION_POLL
    return count


def _check_error(mgr: Any) -> None:
    errors = mgr.get_queue("error")
    if not errors.empty():
        text = errors.get()
        errors.put(text)  # Spark may repeat the task: the next one must see it as well
        raise StandaloneNodeError(f"Exception in worker:\n{text}", fix="Correct the error in your function.")
