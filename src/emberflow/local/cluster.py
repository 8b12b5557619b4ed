"""A real Spark on this machine, Master and Workers, on loopback, for as long as a block runs."""

import json
import os
import re
import secrets
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from emberflow._environment import variables_set
from emberflow._plan import deadlines
from emberflow.config import check_count
from emberflow.errors import ClusterError, ConfigError
from emberflow.local.daemons import Daemon, DaemonGroup, daemon_group, own_environment, wait_until_ready
from emberflow.local.java import find_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
SECRET = "spark.authenticate.secret"

# Small heaps and the serial collector: Master and Workers have little to do, and start faster with them.
_DAEMON_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"


@dataclass(frozen=True, kw_only=True)
class LocalCluster:
    """A running Spark of this machine.

    Attributes:
        url: Spark's master URL, ``spark://127.0.0.1:PORT``.
        workers: The number of Workers; each starts one executor per application.
        cores: Task slots of each Worker.
        gpus: Simulated GPUs of each Worker; their addresses differ between Workers.
        memory: Memory of each Worker for executors.
        log_dir: Where the logs of Master and Workers are; deleted at the end.
        secret: Authenticates sessions. Do not pass it in arguments of programs, which every user can read:
            `session` and `properties_file` do not.
    """

    url: str
    workers: int
    cores: int
    gpus: int
    memory: str
    log_dir: Path
    secret: str = field(repr=False)

    @property
    def properties_file(self) -> Path:
        """The file with the secret, for ``spark-submit --properties-file FILE program.py``."""
        return self.log_dir / "join.conf"

    def settings(self) -> dict[str, str]:
        """Return the Spark settings for a session that uses all of this cluster; the secret is not among them."""
        settings = {
            "spark.master": self.url,
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.ui.enabled": "false",
            "spark.executor.memory": self.memory,
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # jobs wait for all executors
            "spark.executor.cores": str(self.cores),
            "spark.cores.max": str(self.workers * self.cores),
            "spark.authenticate": "true",
        }
        if self.gpus:
            settings["spark.executor.resource.gpu.amount"] = str(self.gpus)
            settings["spark.task.resource.gpu.amount"] = str(max(1, self.gpus // self.cores))
        return settings

    def session(self, app_name: str = "emberflow", conf: Mapping[str, str] | None = None) -> "SparkSession":
        """Start a Spark session on this cluster; stop it before the cluster ends.

        Args:
            app_name: The application's name.
            conf: Settings that extend or replace those of `settings`.

        Raises:
            ClusterError: This process has a SparkContext already; Spark allows one.
        """
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession

        active = SparkContext._active_spark_context  # noqa: SLF001 - PySpark has no public function for this
        if active is not None:
            raise ClusterError(
                f"This process has a Spark session already; Spark allows one. Received: {active.master!r}.",
                fix="Stop it first: spark.stop().",
            )
        settings = self.settings() | dict(conf or {})
        # PySpark passes the environment of this process to the JVM that it starts.
        with variables_set(_spark_basics() | {"PYSPARK_PYTHON": sys.executable}):
            # PySpark starts its JVM with all settings as arguments, which every user can read: the secret follows.
            first = SparkConf(loadDefaults=False).setAll(list(settings.items()))
            SparkContext._ensure_initialized(conf=first)  # noqa: SLF001 - PySpark has no public function for this
            settings[SECRET] = self.secret
            return SparkSession.builder.appName(app_name).config(map=dict(settings)).getOrCreate()


@contextmanager
def local_cluster(
    *,
    workers: int = 2,
    cores: int = 1,
    gpus: int = 0,
    memory: str = "1g",
    start_timeout: float = deadlines.CLUSTER_START_TIMEOUT,
) -> Iterator[LocalCluster]:
    """Run a real Spark on this machine for the length of the block: one Master, and Workers.

    It listens on loopback only, on free ports, authenticates sessions by a secret, and leaves no process or file
    behind, also when this process is killed.

    Args:
        workers: The number of Workers.
        cores: Task slots of each.
        gpus: Simulated GPUs of each Worker, to try GPU scheduling without hardware.
        memory: Memory of each Worker for executors, such as ``"1g"`` or ``"512m"``.
        start_timeout: Seconds until Master and Workers must be ready.

    Example:
        >>> with local_cluster(workers=2) as cluster, cluster.session() as spark:  # doctest: +SKIP
        ...     spark.range(10).count()
        10
    """
    _check(workers=workers, cores=cores, gpus=gpus, memory=memory)
    deadline = time.monotonic() + start_timeout
    with daemon_group("emberflow-cluster-") as group:
        env = _environment(group.folder)
        secret = secrets.token_hex(32)
        cluster = LocalCluster(
            url=wait_until_ready(_start_master(group, env, secret), deadline),
            workers=workers,
            cores=cores,
            gpus=gpus,
            memory=memory,
            log_dir=group.folder,
            secret=secret,
        )
        _write_properties(cluster.properties_file, cluster.settings() | _authentication(secret))
        for worker in [_start_worker(group, env, cluster, index) for index in range(workers)]:
            wait_until_ready(worker, deadline)
        yield cluster


def _check(*, workers: object, cores: object, gpus: object, memory: object) -> None:
    for name, value, least in (("workers", workers, 1), ("cores", cores, 1), ("gpus", gpus, 0)):
        check_count(name, value, least=least)
    if not isinstance(memory, str) or not re.fullmatch(r"[1-9]\d*[mg]", memory):
        raise ConfigError(
            f"`memory` must be megabytes or gigabytes in Spark's notation. Received: memory={memory!r}.",
            fix='Pass local_cluster(memory="1g") or memory="512m".',
        )


def _start_master(group: DaemonGroup, env: Mapping[str, str], secret: str) -> Daemon:
    # The REST server does not authenticate, and needs another port.
    settings = _authentication(secret) | {"spark.master.rest.enabled": "false"}
    command = [
        *(f"{env['SPARK_HOME']}/bin/spark-class", "org.apache.spark.deploy.master.Master"),
        # Port 0: if a fixed port is taken, Spark uses the next one without naming it in its URL.
        *("--host", LOOPBACK, "--port", "0", "--webui-port", "0"),
        *("--properties-file", str(_write_properties(group.folder / "master.conf", settings))),
    ]
    return group.start("Master", command, env, ready_pattern=r"Starting Spark master at (spark://\S+)")


def _start_worker(group: DaemonGroup, env: Mapping[str, str], cluster: LocalCluster, index: int) -> Daemon:
    name = f"Worker-{index}"
    work_dir = group.folder / name
    work_dir.mkdir()
    settings = _authentication(cluster.secret)  # executors get it from their Worker, in the environment
    if cluster.gpus:
        addresses = range(index * cluster.gpus, (index + 1) * cluster.gpus)
        script = _write_discovery_script(
            group.folder / f"{name}-gpus", [str(address) for address in addresses]
        )
        settings["spark.worker.resource.gpu.amount"] = str(cluster.gpus)
        settings["spark.worker.resource.gpu.discoveryScript"] = str(script)
    command = [
        *(f"{env['SPARK_HOME']}/bin/spark-class", "org.apache.spark.deploy.worker.Worker"),
        *("--host", LOOPBACK, "--port", "0", "--webui-port", "0", "--work-dir", str(work_dir)),
        *("--cores", str(cluster.cores), "--memory", cluster.memory),
        *("--properties-file", str(_write_properties(group.folder / f"{name}.conf", settings))),
        cluster.url,
    ]
    return group.start(name, command, env, ready_pattern=r"(Successfully registered with master)")


def _authentication(secret: str) -> dict[str, str]:
    return {"spark.authenticate": "true", SECRET: secret}


def _write_properties(path: Path, settings: Mapping[str, str]) -> Path:
    """Write a file of settings that only this user can read."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:  # noqa: PTH123
        file.writelines(f"{key} {value}\n" for key, value in settings.items())
    return path


def _write_discovery_script(path: Path, addresses: list[str]) -> Path:
    """Write Spark's discovery script for a Worker's GPUs."""
    answer = json.dumps({"name": "gpu", "addresses": addresses})
    path.write_text(f"#!/bin/sh\nprintf '%s\\n' '{answer}'\n")
    path.chmod(0o700)
    return path


def _environment(folder: Path) -> dict[str, str]:
    """Return the environment of Master, Workers and executors, whose scratch files go into `folder`."""
    conf, scratch = folder / "conf", folder / "tmp"
    conf.mkdir()  # empty, so that no spark-env.sh or spark-defaults.conf is read
    scratch.mkdir()
    env = own_environment() | _spark_basics()
    env |= {
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), env.get("PATH", os.defpath))),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(conf),
        "SPARK_DAEMON_JAVA_OPTS": f"{_DAEMON_OPTIONS} {shlex.quote(f'-Djava.io.tmpdir={scratch}')}",
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_LOCAL_DIRS": str(scratch),
        "TMPDIR": str(scratch),
    }
    return env


def _spark_basics() -> dict[str, str]:
    """Return the environment variables of every Spark JVM on this machine."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ClusterError("PySpark is not installed here.", fix="pip install 'pyspark>=3.5'")
    return {
        "JAVA_HOME": str(find_java_home()),
        "SPARK_HOME": str(Path(spec.origin).parent),
        "SPARK_LOCAL_IP": LOOPBACK,  # otherwise Spark uses another interface, whatever host it is configured with
    }
