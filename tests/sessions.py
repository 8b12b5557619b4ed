"""Spark sessions for tests: real clusters of two executors, started when first asked for and kept."""

import os
import threading
import time
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from emberflow.local.cluster import _environment, local_cluster
from emberflow.local.daemons import daemon_group, wait_until_ready

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

SLOTS = 2
START_TIMEOUT = 120.0
DAEMON = "tests.python_daemon"
DAEMON_SETTING = "spark.python.daemon.module"
SETTINGS = {
    DAEMON_SETTING: DAEMON,  # those of a file, and a Connect server's, come instead of spark-defaults.conf
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "1g",
    "spark.cores.max": str(SLOTS),
    "spark.sql.shuffle.partitions": "2",
    "spark.task.maxFailures": "1",
    # Jobs wait until both executors are there; a barrier stage that comes too early looks again after 15 s.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
}
CONNECT_SETTINGS = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.hadoop.fs.defaultFS": "file:///",  # a client cannot read it otherwise, and asks for it
}


class Sessions:
    """One session at a time: a process may have one SparkContext, and classic and Connect exclude each other."""

    def __init__(self) -> None:
        self._kind = ""
        self._session: SparkSession | None = None
        self._holding = ExitStack()

    def get(self, kind: str) -> "SparkSession":
        """Return the session of this kind with both executors up; end the one of another kind."""
        if self._session is not None and (kind != self._kind or not is_alive(self._session)):
            self.close()
        if self._session is None:
            session = self._holding.enter_context(KINDS[kind]())
            self._kind, self._session = kind, session
            if "allocating" not in kind:  # their executors come when tasks wait for them
                await_executors(session)
        elif not has_executors(self._session):  # a test has killed one
            await_executors(self._session)
        return self._session

    def close(self) -> None:
        """End what is running."""
        self._session = None
        holding, self._holding = self._holding, ExitStack()
        holding.close()


def make_spark_home(folder: Path) -> Path:
    """Make a SPARK_HOME of links to the installed PySpark, with a daemon whose Python workers start in no time.

    The Workers of local-cluster write into ``$SPARK_HOME/work``, into a folder named after the second in which the
    application began: two processes that start one in the same second would share it.
    """
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    folder.mkdir()
    for path in Path(spec.origin).parent.iterdir():
        if path.name not in ("work", "conf"):
            (folder / path.name).symlink_to(path)
    (folder / "conf").mkdir()
    (folder / "conf" / "spark-defaults.conf").write_text(f"{DAEMON_SETTING} {DAEMON}\n")
    return folder


@contextmanager
def classic(
    master: str, more: "Mapping[str, str] | None" = None, properties: Path | None = None
) -> "Iterator[SparkSession]":
    """Run a classic session on this master; `more` settings are added to the usual ones, and those of a file."""
    from pyspark.sql import SparkSession

    end_jvm()
    settings = SETTINGS | dict(more or {})
    with submit_arguments(f"--properties-file {properties}" if properties else ""):
        session = SparkSession.builder.master(master).appName("tests").config(map=settings).getOrCreate()
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def submit_arguments(arguments: str) -> "Iterator[None]":
    """Have PySpark start its JVM with these arguments of spark-submit, as a user's environment may say."""
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"{arguments} pyspark-shell"
    try:
        yield
    finally:
        del os.environ["PYSPARK_SUBMIT_ARGS"]


def end_jvm() -> None:
    """End PySpark's JVM: the settings of its first session would stay in force for all later ones."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None and SparkContext._active_spark_context is None:
        SparkContext._gateway = SparkContext._jvm = None
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(START_TIMEOUT)


@contextmanager
def standalone() -> "Iterator[SparkSession]":
    """Run a classic session on a Master and two Workers of its own."""
    with (
        local_cluster(workers=SLOTS, cores=1) as cluster,
        classic(cluster.url, properties=cluster.properties_file) as session,
    ):
        yield session


ALLOCATION = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "3",
    "spark.dynamicAllocation.executorIdleTimeout": "3s",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    # So long executors that hold shuffle files stay: a busy machine reads rows seconds after it has written them.
    "spark.dynamicAllocation.shuffleTracking.timeout": "15s",
    "spark.scheduler.minRegisteredResourcesRatio": "0",
    "spark.executor.cores": "1",
    "spark.cores.max": "3",
    "spark.task.maxFailures": "4",
}
SPECULATION = {  # a copy of each task that runs longer than half of its stage
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.speculation.efficiency.enabled": "false",
}


@contextmanager
def allocating() -> "Iterator[SparkSession]":
    """Run a classic session on three Workers of its own, whose executors come and go by dynamic allocation."""
    with (
        local_cluster(workers=3, cores=1) as cluster,
        classic(cluster.url, ALLOCATION, cluster.properties_file) as session,
    ):
        yield session


@contextmanager
def two_hosts(more: "Mapping[str, str]") -> "Iterator[SparkSession]":
    """Run a classic session on two Workers of two slots each, on two addresses of loopback.

    Spark starts a copy of a task only on another host than the task's own.
    """
    host, settings = "127.0.0.2", {"spark.executor.cores": "1", "spark.cores.max": "4"} | dict(more)
    with local_cluster(workers=1, cores=2, memory="2g") as cluster, daemon_group("emberflow-host-") as group:
        env = _environment(group.folder) | {"SPARK_LOCAL_IP": host}
        command = [f"{env['SPARK_HOME']}/bin/spark-class", "org.apache.spark.deploy.worker.Worker"]
        command += ["--host", host, "--port", "0", "--webui-port", "0", "--work-dir", str(group.folder)]
        command += ["--cores", "2", "--memory", "2g", "--properties-file", str(cluster.properties_file)]
        command.append(cluster.url)
        worker = group.start("Worker", command, env, ready_pattern=r"(Successfully registered with master)")
        wait_until_ready(worker, time.monotonic() + START_TIMEOUT)
        with classic(cluster.url, settings, cluster.properties_file) as session:
            yield session


@contextmanager
def gpus() -> "Iterator[SparkSession]":
    """Run a classic session on two Workers with three slots and two pretended GPUs each."""
    # The cluster's own settings give each task one GPU unless it asks for something else.
    with (
        local_cluster(workers=2, cores=3, gpus=2) as cluster,
        classic(cluster.url, cluster.settings(), cluster.properties_file) as session,
    ):
        yield session


@contextmanager
def gpus_allocating() -> "Iterator[SparkSession]":
    """As `gpus`, but executors come and go by dynamic allocation."""
    with local_cluster(workers=2, cores=3, gpus=2) as cluster:
        settings = ALLOCATION | cluster.settings() | {"spark.scheduler.minRegisteredResourcesRatio": "0"}
        with classic(cluster.url, settings, cluster.properties_file) as session:
            yield session


@contextmanager
def connect(more: "Mapping[str, str] | None" = None) -> "Iterator[SparkSession]":
    """Run a Spark Connect server with two executors and `more` settings, and a remote session on it."""
    from pyspark.sql import SparkSession

    if not list(Path(os.environ["SPARK_HOME"]).glob("jars/spark-connect_*.jar")):
        pytest.skip("this PySpark brings no Spark Connect server: Spark 4.0 is the first that does")
    with connect_server(more) as url:
        session = SparkSession.builder.remote(url).getOrCreate()
        try:
            yield session
        finally:
            session.stop()
            # PySpark leaves this set, and then refuses every classic session of this process.
            os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)


@contextmanager
def connect_server(more: "Mapping[str, str] | None" = None) -> "Iterator[str]":
    """Run a Spark Connect server on ``local-cluster[2,1,1024]``; its address is the value."""
    with daemon_group("emberflow-connect-") as group:
        env = _environment(group.folder) | {"SPARK_HOME": os.environ["SPARK_HOME"]}
        command = [f"{env['SPARK_HOME']}/bin/spark-submit", "--master", f"local-cluster[{SLOTS},1,1024]"]
        for key, value in (SETTINGS | CONNECT_SETTINGS | dict(more or {})).items():
            command += ["--conf", f"{key}={value}"]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
        server = group.start(
            "Connect", command, env, ready_pattern=r"Connect server started at: \S*?(\d+)\s*$"
        )
        port = wait_until_ready(server, time.monotonic() + START_TIMEOUT)
        yield f"sc://127.0.0.1:{port}"


KINDS: "dict[str, Callable[[], Any]]" = {
    "local": lambda: classic(f"local[{SLOTS}]"),
    "cluster": lambda: classic(f"local-cluster[{SLOTS},1,1024]"),
    "three": lambda: classic("local-cluster[3,1,1024]", {"spark.cores.max": "3"}),
    "limited": lambda: classic(f"local-cluster[{SLOTS},1,1024]", {"spark.driver.maxResultSize": "1m"}),
    "retrying": lambda: classic(f"local-cluster[{SLOTS},1,1024]", {"spark.task.maxFailures": "4"}),
    "standalone": standalone,
    "allocating": allocating,
    "connect": connect,
    "connect_allocating": lambda: connect(ALLOCATION | {"spark.cores.max": "2"}),
    "gpus": gpus,
    "gpus_allocating": gpus_allocating,
}
SMOKE = ("local", "cluster", "standalone", "connect")


def is_alive(session: "SparkSession") -> bool:
    """Say whether the session can still run jobs."""
    if is_remote(session):
        return not getattr(session, "is_stopped", False)
    jsc = session.sparkContext._jsc
    return jsc is not None and not jsc.sc().isStopped()


def is_remote(session: "SparkSession") -> bool:
    """Say whether this is a Spark Connect session."""
    return ".connect." in type(session).__module__


def has_executors(session: "SparkSession") -> bool:
    """Say whether as many executors as there should be are registered (unknown on Connect: yes)."""
    if is_remote(session) or str(session.sparkContext.master).startswith("local["):
        return True
    if session.conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        return True
    return executors(session) >= SLOTS


def executors(session: "SparkSession") -> int:
    """Count the executors that the driver knows; the driver counts itself too."""
    return int(session.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1


def await_executors(session: "SparkSession") -> None:
    """Return when two tasks can run at the same time."""
    deadline = time.monotonic() + START_TIMEOUT
    pause = threading.Event()
    while not has_executors(session):
        assert time.monotonic() < deadline, f"only {executors(session)} of {SLOTS} executors came up"
        pause.wait(0.05)
    assert session.range(0, SLOTS, 1, SLOTS).mapInArrow(_same, "id long", barrier=True).count() == SLOTS


def _same(batches: "Iterator[Any]") -> "Iterator[Any]":
    yield from batches
