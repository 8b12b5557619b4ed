"""What the driver knows of a cluster, as programs for TensorFlowOnSpark read it, and the GPUs that they mean."""

import logging
import os
import random
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import emberflow as ef
from tensorflowonspark.node_gpus import wanted_gpus
from tensorflowonspark.node_roles import Layout

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

OLD_PORTS = ("TENSORFLOW_PORT", "TENSORBOARD_PORT", "TFOS_SERVER_PORT")


def session_of(sc: "SparkContext") -> "SparkSession":
    """Return the session of a SparkContext."""
    from pyspark.sql import SparkSession

    del sc  # the only one of this process
    return SparkSession.builder.getOrCreate()


def default_fs_of(sc: "SparkContext") -> str:
    """Return Hadoop's default file system, without the slash of ``file:///``."""
    default_fs: str = sc._jsc.hadoopConfiguration().get("fs.defaultFS")  # noqa: SLF001 - the only way to it
    if default_fs.startswith("file://") and len(default_fs) > len("file://"):
        default_fs = default_fs.removesuffix("/")
    return default_fs


def meta_of(sc: "SparkContext", layout: Layout, num_executors: int, release_port: bool) -> dict[str, Any]:
    """Return what programs find in `cluster.cluster_meta`."""
    return {
        "id": random.getrandbits(64),
        "cluster_template": layout.template(),
        "num_executors": num_executors,
        "default_fs": default_fs_of(sc),
        "working_dir": os.getcwd(),  # noqa: PTH109 - a text, as ever
        "server_addr": None,
        "release_port": release_port,
    }


def gpu_options(sc: "SparkContext", tf_args: Any) -> dict[str, Any]:
    """Return how many GPUs each worker gets: what Spark assigns, or what the arguments ask for; none unasked."""
    assigned = int(float(sc.getConf().get("spark.task.resource.gpu.amount", "0") or 0))
    wanted = wanted_gpus(tf_args)
    gpus = assigned if wanted is None else wanted
    return {"gpus": gpus, "gpu_source": "spark" if assigned else "nvml"} if gpus else {}


def warn_of_old_ports(sc: "SparkContext") -> None:
    """Log what to set instead of the variables that named one port per process: ours listen on more than one."""
    for name in OLD_PORTS:
        if name in os.environ or sc.getConf().get(f"spark.executorEnv.{name}"):
            logger.warning(
                "%s has no effect. For a firewall, set the ports that driver and nodes may listen on: "
                "--conf spark.emberflow.portRange=30000-30100.",
                name,
            )


def node_infos(cluster: ef.Cluster, layout: Layout) -> list[dict[str, Any]]:
    """Return what programs find in `cluster.cluster_info`: a dict per node, by executor id."""
    nodes = []
    for node in cluster.status():
        job, index = layout.job_of(node.role, node.index)
        nodes.append(
            {
                "executor_id": layout.executor_id(node.role, node.index),
                "host": node.host,
                "job_name": job,
                "task_index": index,
                "port": int(node.address.rpartition(":")[2]),
                "tb_pid": 0,
                "tb_port": 0,
                "addr": None,
                "authkey": b"",
            }
        )
    return sorted(nodes, key=lambda node: node["executor_id"])


def with_tensorboard(nodes: list[dict[str, Any]], chief: int, url: str | None) -> list[dict[str, Any]]:
    """Return the same with the port of TensorBoard, at the node that leads.

    >>> with_tensorboard([{"executor_id": 0, "tb_port": 0}], 0, "http://host:6006/")
    [{'executor_id': 0, 'tb_port': 6006}]
    """
    port = (urlsplit(url).port if url else None) or 0
    return [node | {"tb_port": port if node["executor_id"] == chief else 0} for node in nodes]
