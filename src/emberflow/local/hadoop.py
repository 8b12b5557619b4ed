"""A real Hadoop on this machine, HDFS and if wanted YARN, on loopback, for as long as a block runs."""

import getpass
import http.client
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from emberflow._plan import deadlines
from emberflow.config import check_count
from emberflow.errors import ClusterError, StartTimeoutError
from emberflow.local.daemons import Daemon, DaemonGroup, daemon_group, own_environment, wait_until_ready
from emberflow.local.hadoop_jars import hadoop_jars
from emberflow.local.hadoop_settings import (
    LOOPBACK,
    HadoopPorts,
    choose_ports,
    spark_settings,
    write_settings,
)
from emberflow.local.java import find_java_home

# Small heaps and one compiler: the servers have little to do, and start faster with them.
_JAVA_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
_NAME_NODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATA_NODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
_RESOURCE_MANAGER = "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"
_NODE_MANAGER = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"
_SHELL = "org.apache.hadoop.fs.FsShell"
_FORMAT_AND_START = '"$@" -format -nonInteractive && exec "$@"'


class CommandResult(NamedTuple):
    """How a command of Hadoop ended: its exit code, what it printed, and its log."""

    code: int
    output: str
    log: str


class LocalHadoop:
    """A running Hadoop of this machine.

    Attributes:
        default_fs: HDFS, as ``hdfs://127.0.0.1:PORT``.
        conf_dir: What HADOOP_CONF_DIR must say for Spark and for Hadoop's own programs.
        user: Who may do everything on it: who started it.
        home: This user's folder on HDFS.
        log_dir: Where the servers' logs are; deleted at the end.
        page: The NameNode's web page.
        yarn_page: The ResourceManager's web page; None without YARN.
    """

    def __init__(self, group: DaemonGroup, ports: HadoopPorts, *, yarn: bool, data_nodes: int) -> None:
        self.default_fs = f"hdfs://{LOOPBACK}:{ports.name_node}"
        self.conf_dir = group.folder / "conf"
        self.log_dir = group.folder
        self.user = getpass.getuser()
        self.home = f"/user/{self.user}"
        self.page = f"http://{LOOPBACK}:{ports.name_node_page}"
        self.yarn_page = f"http://{LOOPBACK}:{ports.resource_page}" if yarn else None
        self._group = group
        self._page_port = ports.name_node_page
        self._data = group.folder / "data"
        self._data_nodes: dict[int, Daemon] = {}
        self._env = _environment(group.folder, self.conf_dir)
        write_settings(self.conf_dir, ports, self._data, self.user)
        lines = [f"{name} {value}\n" for name, value in spark_settings().items()]
        self.properties_file.write_text("".join(lines))
        deadline = time.monotonic() + deadlines.HADOOP_START_TIMEOUT
        self._name_node = self._start_name_node("/bin/sh", "-c", _FORMAT_AND_START, "name-node")
        started = [(index, self._start_data_node(index)) for index in range(data_nodes)]
        servers = self._start_yarn() if yarn else []
        wait_until_ready(self._name_node, deadline)
        for index, daemon in started:
            wait_until_ready(daemon, deadline)
            self._data_nodes[index] = daemon
        self._make_folder(self.home, "755")
        self._make_folder("/tmp", "1777")
        for server in servers:
            wait_until_ready(server, deadline)

    @property
    def properties_file(self) -> Path:
        """The settings for Spark on this YARN, for ``spark-submit --properties-file FILE program.py``."""
        return self.log_dir / "spark.conf"

    def environment(self) -> dict[str, str]:
        """Return the environment variables that a program needs to find this Hadoop."""
        return {
            "HADOOP_CONF_DIR": str(self.conf_dir),
            "JAVA_HOME": str(find_java_home()),
            "SPARK_LOCAL_IP": LOOPBACK,
        }

    def run_fs_shell(self, *arguments: str) -> str:
        """Run Hadoop's own file system shell, such as ``run_fs_shell("-ls", "/")``; return what it printed.

        Raises:
            ClusterError: It exited with another code than 0.
        """
        done = self.run_command(_SHELL, *arguments)
        if done.code != 0:
            raise ClusterError(
                f"Hadoop's shell exited with code {done.code}. Received: {' '.join(arguments)!r}.\n{done.log}",
                fix=f"Look at the message above; the servers' logs are in {self.log_dir}.",
            )
        return done.output

    def run_command(self, main_class: str, *arguments: str) -> CommandResult:
        """Run a program of Hadoop, such as ``org.apache.hadoop.yarn.client.cli.LogsCLI``."""
        done = subprocess.run(
            [*_java(self._group.folder), main_class, *arguments],
            env=self._group.marked(self._env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=deadlines.HADOOP_COMMAND_TIMEOUT,
            check=False,
        )
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def stop_data_node(self, index: int = 0) -> None:
        """Kill a DataNode; the NameNode notices after some seconds."""
        self._group.kill(self._data_nodes.pop(index))

    def start_data_node(self, index: int = 0) -> None:
        """Start a DataNode that was stopped; it has its blocks. Returns when the NameNode knows it."""
        daemon = self._start_data_node(index)
        wait_until_ready(daemon, time.monotonic() + deadlines.HADOOP_START_TIMEOUT)
        self._data_nodes[index] = daemon

    def restart_name_node(self) -> None:
        """Kill the NameNode and start it again, on the same port; returns when HDFS takes writes again."""
        self.stop_name_node()
        self.start_name_node()

    def stop_name_node(self) -> None:
        """Kill the NameNode."""
        self._group.kill(self._name_node)

    def start_name_node(self) -> None:
        """Start a NameNode that was stopped, on the same port; returns when HDFS takes writes again."""
        deadline = time.monotonic() + deadlines.HADOOP_START_TIMEOUT
        self._name_node = self._start_name_node()
        wait_until_ready(self._name_node, deadline)
        self._await_data_nodes(deadline)

    def _start_name_node(self, *before: str) -> Daemon:
        command = [*before, *_java(self._group.folder), _NAME_NODE]
        return self._group.start("NameNode", command, self._env, ready_pattern=r"(NameNode RPC up at)")

    def _start_data_node(self, index: int) -> Daemon:
        folder = (self._data / f"data-{index}").as_uri()
        command = [*_java(self._group.folder), _DATA_NODE, "-D", f"dfs.datanode.data.dir={folder}"]
        pattern = r"(Successfully sent block report)"
        return self._group.start(f"DataNode-{index}", command, self._env, ready_pattern=pattern)

    def _start_yarn(self) -> list[Daemon]:
        java = _java(self._group.folder)
        return [
            self._group.start(
                "ResourceManager", [*java, _RESOURCE_MANAGER], self._env, r"(Transitioned to active state)"
            ),
            self._group.start(
                "NodeManager", [*java, _NODE_MANAGER], self._env, r"(Registered with ResourceManager)"
            ),
        ]

    def _await_data_nodes(self, deadline: float) -> None:
        """Return when the NameNode has left its safe mode and knows its data nodes again."""
        pause = threading.Event()
        while True:
            state = self._name_node_state()
            if state["FSState"] == "Operational" and state["NumLiveDataNodes"] == len(self._data_nodes):
                return
            if time.monotonic() > deadline:
                raise StartTimeoutError(
                    f"HDFS does not take writes after the NameNode's restart. Received: {state['FSState']}, "
                    f"{state['NumLiveDataNodes']} of {len(self._data_nodes)} data nodes.",
                    fix=f"Look at the logs in {self.log_dir}.",
                )
            pause.wait(deadlines.HADOOP_POLL)

    def _name_node_state(self) -> dict[str, Any]:
        answer = self._ask_name_node("GET", "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState")
        state: dict[str, Any] = json.loads(answer)["beans"][0]
        return state

    def _make_folder(self, path: str, permission: str) -> None:
        query = f"op=MKDIRS&permission={permission}&user.name={self.user}"
        self._ask_name_node("PUT", f"/webhdfs/v1{path}?{query}")

    def _ask_name_node(self, method: str, path: str) -> str:
        """Send a request to the NameNode's web server: a JVM of its own for it would take seconds."""
        connection = http.client.HTTPConnection(
            LOOPBACK, self._page_port, timeout=deadlines.HADOOP_COMMAND_TIMEOUT
        )
        try:
            connection.request(method, path)
            response = connection.getresponse()
            answer = response.read().decode(errors="replace")
        finally:
            connection.close()
        if response.status != http.HTTPStatus.OK:
            raise ClusterError(
                f"The NameNode refused {method} {path}. Received: {response.status} {answer}",
                fix=f"Look at {self.log_dir / 'NameNode.log'}.",
            )
        return answer


@contextmanager
def running_hadoop(
    folder: Path | None = None, *, yarn: bool = False, data_nodes: int = 1
) -> Iterator[LocalHadoop]:
    """Run a real Hadoop on this machine for the length of the block: HDFS, and YARN if wanted.

    NameNode, DataNodes, ResourceManager and NodeManager are processes of their own, on loopback only. They leave no
    process or file behind, also when this process is killed. Maven brings their jars the first time.

    Args:
        folder: Where a folder for its files is made; None is the folder for temporary files.
        yarn: Whether to start a ResourceManager and a NodeManager too.
        data_nodes: The number of DataNodes.

    Raises:
        ClusterError: Maven could not bring the jars, or a server did not start.

    Example:
        >>> with running_hadoop() as hadoop:  # doctest: +SKIP
        ...     hadoop.run_fs_shell("-ls", "/user")
    """
    check_count("data_nodes", data_nodes, least=1)
    hadoop_jars()
    with daemon_group("emberflow-hadoop-", folder) as group:
        yield LocalHadoop(group, choose_ports(), yarn=yarn, data_nodes=data_nodes)


def _java(folder: Path) -> list[str]:
    """Return the command of a JVM of Hadoop, without its class."""
    java = find_java_home() / "bin" / "java"
    return [
        str(java),
        *_JAVA_OPTIONS,
        "-Djava.net.preferIPv4Stack=true",
        f"-Djava.io.tmpdir={folder / 'tmp'}",
    ]


def _environment(folder: Path, conf_dir: Path) -> dict[str, str]:
    """Return the environment of the servers and of YARN's containers."""
    scratch = folder / "tmp"
    scratch.mkdir()
    return own_environment() | {
        "CLASSPATH": f"{conf_dir}:{hadoop_jars()}/*",
        "HADOOP_CONF_DIR": str(conf_dir),
        "JAVA_HOME": str(find_java_home()),
        "SPARK_LOCAL_IP": LOOPBACK,
        "TMPDIR": str(scratch),
    }
