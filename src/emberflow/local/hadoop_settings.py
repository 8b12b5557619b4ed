"""The settings of a Hadoop on this machine: loopback only, a quick start, and losses that are noticed in seconds."""

import random
import socket
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from emberflow.errors import ClusterError

LOOPBACK = "127.0.0.1"
MEMORY = 12288  # megabytes that YARN gives to containers
CORES = 8

# Below the ports that kernels give to outgoing connections: a chosen one stays free until its server is up.
_PORTS = range(20000, 32000)

_LOGGING = """\
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
# A thousand lines about locks when a DataNode starts.
log4j.logger.org.apache.hadoop.hdfs.server.datanode.fsdataset.impl.FsDatasetImpl=WARN
# No jar has code for this machine; Hadoop's Java does the same.
log4j.logger.org.apache.hadoop.util.NativeCodeLoader=ERROR
"""


class HadoopPorts(NamedTuple):
    """Where the servers listen that others must find."""

    name_node: int
    name_node_page: int
    resource_manager: int
    scheduler: int
    resource_tracker: int
    resource_admin: int
    resource_page: int


def choose_ports() -> HadoopPorts:
    """Choose ports that nobody listens on."""
    chosen: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as sock:
            try:
                sock.bind((LOOPBACK, port))
            except OSError:
                continue
        chosen.append(port)
        if len(chosen) == len(HadoopPorts._fields):
            break
    return HadoopPorts(*chosen)


def write_settings(conf_dir: Path, ports: HadoopPorts, data: Path, user: str) -> None:
    """Write HADOOP_CONF_DIR: what the servers and all clients read.

    Args:
        conf_dir: The folder to write to.
        ports: Where the servers listen.
        data: Where they keep their files.
        user: Who starts them, and may do everything.
    """
    conf_dir.mkdir()
    (conf_dir / "log4j.properties").write_text(_LOGGING)
    _write(conf_dir / "core-site.xml", _core(ports, data, user))
    _write(conf_dir / "hdfs-site.xml", _hdfs(ports, data))
    _write(conf_dir / "yarn-site.xml", _yarn(ports, data))
    _write(conf_dir / "capacity-scheduler.xml", _queues())


def spark_settings() -> dict[str, str]:
    """Return the settings for a Spark session on this YARN: two executors of one core, all of this machine.

    Spark's jars and Python are those of this environment: nothing is copied to HDFS and back for each application.
    """
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ClusterError("PySpark is not installed here.", fix="pip install 'emberflow'")
    return {
        "spark.master": "yarn",
        "spark.yarn.jars": f"local:{Path(spec.origin).parent}/jars/*",
        "spark.pyspark.python": sys.executable,
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.ui.enabled": "false",
        "spark.executor.instances": "2",
        "spark.executor.cores": "1",
        "spark.executor.memory": "1g",
        # Python's and TensorFlow's memory is outside of the JVMs', and YARN ends containers that take more.
        "spark.executor.memoryOverhead": "2g",
        "spark.driver.memoryOverhead": "1g",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # jobs wait for all executors
        "spark.yarn.maxAppAttempts": "1",
    }


def _core(ports: HadoopPorts, data: Path, user: str) -> dict[str, str]:
    return {
        "fs.defaultFS": f"hdfs://{LOOPBACK}:{ports.name_node}",
        "hadoop.tmp.dir": str(data),
        "hadoop.http.staticuser.user": user,  # the web pages show what this user may see
    }


def _hdfs(ports: HadoopPorts, data: Path) -> dict[str, str]:
    anywhere = f"{LOOPBACK}:0"
    return {
        "dfs.namenode.http-address": f"{LOOPBACK}:{ports.name_node_page}",
        "dfs.namenode.name.dir": (data / "name").as_uri(),
        "dfs.datanode.address": anywhere,
        "dfs.datanode.http.address": anywhere,
        "dfs.datanode.ipc.address": anywhere,
        "dfs.datanode.hostname": LOOPBACK,
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        "dfs.replication": "1",
        "dfs.namenode.fs-limits.min-block-size": "1024",  # so that a small file can have several blocks
        "dfs.namenode.safemode.extension": "0",
        "dfs.namenode.resource.du.reserved": "0",
        # A DataNode that says nothing for 12 s is lost; after 3 s nobody is sent to it.
        "dfs.heartbeat.interval": "1",
        "dfs.namenode.heartbeat.recheck-interval": "1000",
        "dfs.namenode.stale.datanode.interval": "3000",
        "dfs.namenode.avoid.read.stale.datanode": "true",
        "dfs.namenode.avoid.write.stale.datanode": "true",
        "dfs.datanode.scan.period.hours": "-1",
    }


def _yarn(ports: HadoopPorts, data: Path) -> dict[str, str]:
    resources = "yarn.resourcemanager"
    node = "yarn.nodemanager"
    return {
        f"{resources}.hostname": LOOPBACK,
        f"{resources}.address": f"{LOOPBACK}:{ports.resource_manager}",
        f"{resources}.scheduler.address": f"{LOOPBACK}:{ports.scheduler}",
        f"{resources}.resource-tracker.address": f"{LOOPBACK}:{ports.resource_tracker}",
        f"{resources}.admin.address": f"{LOOPBACK}:{ports.resource_admin}",
        f"{resources}.webapp.address": f"{LOOPBACK}:{ports.resource_page}",
        f"{resources}.nodemanagers.heartbeat-interval-ms": "200",  # containers come that much sooner
        f"{node}.hostname": LOOPBACK,
        f"{node}.address": f"{LOOPBACK}:0",
        f"{node}.localizer.address": f"{LOOPBACK}:0",
        f"{node}.webapp.address": f"{LOOPBACK}:0",
        f"{node}.local-dirs": str(data / "containers"),
        f"{node}.log-dirs": str(data / "container-logs"),
        f"{node}.resource.memory-mb": str(MEMORY),
        f"{node}.resource.cpu-vcores": str(CORES),
        # Hadoop's default leaves memory to control groups of the kernel, which this YARN has not: nobody would end a
        # container that takes too much.
        f"{node}.resource.memory.enforced": "false",
        # JVMs and TensorFlow reserve far more addresses than they use memory.
        f"{node}.vmem-check-enabled": "false",
        f"{node}.container-monitor.interval-ms": "500",
        # A disk that is nearly full would be taken out of service: every few minutes, and once at the start even
        # where the checker is off.
        f"{node}.disk-health-checker.enable": "false",
        f"{node}.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
        f"{node}.env-whitelist": "JAVA_HOME,HADOOP_CONF_DIR,PATH,LANG,TZ,SPARK_LOCAL_IP",
        # By default in /tmp, where it would stay.
        "yarn.node-attribute.fs-store.root-dir": (data / "node-attributes").as_uri(),
        "yarn.nm.liveness-monitor.expiry-interval-ms": "10000",
        "yarn.scheduler.minimum-allocation-mb": "128",
        "yarn.scheduler.maximum-allocation-mb": str(MEMORY),
        "yarn.scheduler.maximum-allocation-vcores": str(CORES),
        "yarn.log-aggregation-enable": "true",  # what `yarn logs` reads when an application has ended
    }


def _queues() -> dict[str, str]:
    """Return the queues of YARN's capacity scheduler: its own one, and another to try ``--queue`` with."""
    root = "yarn.scheduler.capacity"
    return {
        f"{root}.maximum-am-resource-percent": "0.8",  # a small cluster: few containers, each with its master
        f"{root}.root.queues": "default,training",
        f"{root}.root.default.capacity": "50",
        f"{root}.root.default.maximum-capacity": "100",
        f"{root}.root.default.user-limit-factor": "2",
        f"{root}.root.training.capacity": "50",
        f"{root}.root.training.maximum-capacity": "100",
        f"{root}.root.training.user-limit-factor": "2",
    }


def _write(path: Path, settings: Mapping[str, str]) -> None:
    lines = [
        f"  <property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in settings.items()
    ]
    path.write_text("\n".join(["<configuration>", *lines, "</configuration>", ""]))
