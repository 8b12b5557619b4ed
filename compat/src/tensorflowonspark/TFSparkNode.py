"""The context of a node, and the functions of Spark's tasks for programs that start nodes themselves.

`TFCluster` uses the context only: its nodes, feeds and results are Emberflow's.
"""

import json
import logging
import os
import secrets
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from tensorflowonspark import TFManager, TFNode, reservation, util
from tensorflowonspark.node_gpus import set_visible_gpus
from tensorflowonspark.node_queues import RUNNING
from tensorflowonspark.old_errors import StandaloneNodeError
from tensorflowonspark.standalone_feeds import inference, shutdown, train

__all__ = ["TFNodeContext", "TFSparkNode", "inference", "run", "shutdown", "train"]

logger = logging.getLogger(__name__)

Info = dict[str, Any]


def _has_spark_resource_api() -> bool:
    """Tell whether this Spark assigns resources to tasks: since 3.0."""
    import pyspark

    return int(pyspark.__version__.partition(".")[0]) >= 3


def _get_cluster_spec(sorted_cluster_info: list[Info]) -> dict[str, list[str]]:
    """Return the addresses of each job, from what nodes have registered, sorted by executor id."""
    spec: dict[str, list[str]] = {}
    ids = [node["executor_id"] for node in sorted_cluster_info]
    if len(set(ids)) != len(ids):
        raise StandaloneNodeError(
            f"Duplicate worker/task in cluster_info. Received: executor ids {ids}.",
            fix="Let each executor register once.",
        )
    for node in sorted_cluster_info:
        spec.setdefault(node["job_name"], []).append(f"{node['host']}:{node['port']}")
    return spec


class TFNodeContext:
    """What your function sees of its node.

    Attributes:
        executor_id: The node's number over all jobs; `worker_num` is the same.
        job_name: "ps", "worker", "chief" or "master", "evaluator".
        task_index: The number within the job.
        cluster_spec: Job name to addresses.
        num_workers: How many nodes train: those of the jobs master, chief and worker.
        defaultFS: Hadoop's default file system.
        working_dir: The driver's folder.
        mgr: The node's queues and values.
        tmp_socket: Held until `release_port`, if the cluster was started with release_port=False.
    """

    def __init__(
        self,
        executor_id: int = 0,
        job_name: str = "",
        task_index: int = 0,
        cluster_spec: dict[str, list[str]] = {},  # noqa: B006 - the old default; it is never changed
        defaultFS: str = "file://",
        working_dir: str = ".",
        mgr: Any = None,
        tmp_socket: socket.socket | None = None,
    ) -> None:
        self.executor_id = self.worker_num = executor_id
        self.job_name = job_name
        self.task_index = task_index
        self.cluster_spec = cluster_spec
        self.num_workers = sum(len(cluster_spec.get(job, ())) for job in ("master", "chief", "worker"))
        self.defaultFS = defaultFS
        self.working_dir = working_dir
        self.mgr = mgr
        self.tmp_socket = tmp_socket
        self.mirror_by: Callable[[str], Any] | None = None

    def absolute_path(self, path: str) -> str:
        """Return the URL that a path means; see `TFNode.hdfs_path`."""
        return TFNode.hdfs_path(self, path)

    def mirror(self, path: str) -> str:
        """Return a local folder that is kept equal with a remote one, for code that opens local paths only.

        Write it where a program has `absolute_path`. It is Emberflow's ``ctx.mirror``, for nodes of `TFCluster` and
        `TFParallel`.
        """
        if self.mirror_by is None:
            raise StandaloneNodeError(
                f"Only nodes of TFCluster and TFParallel can mirror folders. Received: path={path!r} on another.",
                fix="Start the node by TFCluster.run.",
            )
        return str(self.mirror_by(self.absolute_path(path)))

    def start_cluster_server(self, num_gpus: int = 1, rdma: bool = False) -> Any:
        """Refuse; see `TFNode.start_cluster_server`."""
        return TFNode.start_cluster_server(self, num_gpus, rdma)

    def export_saved_model(self, sess: Any, export_dir: str, tag_set: str, signatures: Any) -> None:
        """Refuse; see `TFNode.export_saved_model`."""
        TFNode.export_saved_model(sess, export_dir, tag_set, signatures)

    def get_data_feed(
        self,
        train_mode: bool = True,
        qname_in: str = "input",
        qname_out: str = "output",
        input_mapping: dict[str, str] | None = None,
    ) -> TFNode.DataFeed:
        """Return the rows of this node."""
        return TFNode.DataFeed(self.mgr, train_mode, qname_in, qname_out, input_mapping)

    def release_port(self) -> None:
        """Close the socket that holds the port of TensorFlow's server."""
        if self.tmp_socket is None:
            logger.warning("There is no socket to release: start the cluster with release_port=False.")
            return
        self.tmp_socket.close()
        self.tmp_socket = None


class TFSparkNode:
    """What a Python worker knows of the node that it has started."""

    mgr: Any = None
    cluster_id: Any = None


def run(
    fn: Callable[[Any, Any], Any],
    tf_args: Any,
    cluster_meta: Info,
    tensorboard: bool,
    log_dir: str | None,
    queues: list[str],
    background: bool,
) -> Callable[[Iterable[int]], None]:
    """Return a function for `foreachPartition` that makes each task a node, on one machine.

    Args:
        fn: Your function.
        tf_args: What it gets; as a list also as `sys.argv`.
        cluster_meta: `id`, `cluster_template`, `default_fs`, `working_dir`, `server_addr` and `release_port`.
        tensorboard: Must be False: `TFCluster` starts TensorBoard.
        log_dir: Not used.
        queues: The names of the node's queues.
        background: Whether to return while your function runs, so that other tasks can feed it.
    """
    del log_dir
    if tensorboard:
        raise StandaloneNodeError(
            "TensorBoard is started by TFCluster.run. Received: tensorboard=True in TFSparkNode.run.",
            fix="Use TFCluster.run(..., tensorboard=True).",
        )

    def _mapfn(iterator: Iterable[int]) -> None:
        (executor_id,) = list(iterator)[-1:]
        set_visible_gpus(tf_args, _has_spark_resource_api())
        ctx = _joined(executor_id, cluster_meta, queues)
        place = (ctx.cluster_spec, ctx.job_name, ctx.task_index)
        set_visible_gpus(tf_args, _has_spark_resource_api(), place)
        if isinstance(tf_args, list):
            sys.argv = tf_args
        if background:
            threading.Thread(target=_run_and_tell, args=(fn, tf_args, ctx), daemon=True).start()
        else:
            fn(tf_args, ctx)

    return _mapfn


def _joined(executor_id: int, meta: Info, queues: list[str]) -> TFNodeContext:
    """Register this node, wait for the others, and return its context."""
    job, index = next(
        (job, ids.index(executor_id)) for job, ids in meta["cluster_template"].items() if executor_id in ids
    )
    util.write_executor_id(executor_id)
    authkey = secrets.token_bytes(16)
    TFSparkNode.mgr = TFManager.start(authkey, queues)
    TFSparkNode.mgr.set("state", RUNNING)
    TFSparkNode.cluster_id = meta["id"]
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", int(os.environ.get("TENSORFLOW_PORT", "0"))))
    client = reservation.Client(meta["server_addr"])
    client.register(
        {
            "executor_id": executor_id,
            "host": "127.0.0.1",
            "job_name": job,
            "task_index": index,
            "port": held.getsockname()[1],
            "tb_pid": 0,
            "tb_port": 0,
            "addr": TFSparkNode.mgr.address,
            "authkey": authkey,
        }
    )
    nodes = client.await_reservations()
    client.close()
    spec = _get_cluster_spec(sorted(nodes, key=lambda node: int(node["executor_id"])))
    if "master" in spec or "chief" in spec:
        config = {"cluster": spec, "task": {"type": job, "index": index}, "environment": "cloud"}
        os.environ["TF_CONFIG"] = json.dumps(config)
    is_released = meta.get("release_port", True)
    if is_released:
        held.close()
    socket_of = None if is_released else held
    return TFNodeContext(
        executor_id, job, index, spec, meta["default_fs"], meta["working_dir"], TFSparkNode.mgr, socket_of
    )


def _run_and_tell(fn: Callable[[Any, Any], Any], tf_args: Any, ctx: TFNodeContext) -> None:
    try:
        fn(tf_args, ctx)
    except Exception:  # noqa: BLE001 - told to the tasks that feed it
        ctx.mgr.get_queue("error").put(traceback.format_exc())
