"""What a run must not leave behind: processes, listening ports, folders."""

import contextlib
import os
import re
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import NamedTuple

import psutil

# Every process that the tests start, at any depth, carries this mark; so a neighbour's are not blamed on us.
MARK = "EMBERFLOW_TESTS"
RUN = "EMBERFLOW_RUN"
DEADLINE = 10.0

# What Spark keeps as long as its session; in an executor with a working folder, files that were added are there.
# Models for scoring are in the folder of an executor's blocks, which Spark deletes with the executor.
SESSION_FILE = re.compile(
    r"/(userFiles|artifacts)-|/app-[^/]+/\d+/emberflow-[0-9a-f]{32}\.|/blockmgr-[^/]+/emberflow-model-"
)


def mark_this_process() -> None:
    """Let all children carry the mark."""
    os.environ[MARK] = uuid.uuid4().hex


def descriptors_in(folder: Path) -> int:
    """Return how many open files of this process are in a folder, deleted ones included.

    Not all descriptors of the process: what earlier tests left to the garbage collector may be closed at any time.
    """
    links = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one by which this loop reads the folder
            links.append(str(descriptor.readlink()))
    return sum(link.startswith(f"{folder}/") for link in links)


class Belongings(NamedTuple):
    """What there is at one moment, in words."""

    nodes: frozenset[str]
    ports: frozenset[str]
    folders: frozenset[str]

    def beyond(self, before: "Belongings") -> list[str]:
        """Name what was not there before. Nodes are named whenever they are there: each belongs to one run."""
        return sorted((self.ports - before.ports) | (self.folders - before.folders) | self.nodes)


def look() -> Belongings:
    """Look at all processes that carry our mark, and at the folders where runs put theirs."""
    nodes, ports = set(), set()
    for process in psutil.process_iter():
        try:
            env = os.environ if process.pid == os.getpid() else process.environ()
            if env.get(MARK) != os.environ[MARK] or process.status() == psutil.STATUS_ZOMBIE:
                continue
            command = " ".join(process.cmdline())
            words = command[:200]
            if env.get(RUN) and process.pid != os.getpid():
                nodes.add(f"process {process.pid} of run {env[RUN]}: {words}")
            if not _is_sparks_own(command):
                ports |= {f"port {port} of process {process.pid}: {words}" for port in _listening(process)}
        except psutil.Error:
            continue  # it has just ended, or is not ours to look at
    return Belongings(frozenset(nodes), frozenset(ports), frozenset(_folders()))


def await_nothing_beyond(before: Belongings, timeout: float = DEADLINE) -> None:
    """Return as soon as nothing new is there; fail with its names after the deadline."""
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    while left := look().beyond(before):
        if time.monotonic() > deadline:
            raise AssertionError(f"left behind after {timeout:.0f} s:\n  " + "\n  ".join(left))
        pause.wait(0.05)


def _is_sparks_own(command: str) -> bool:
    """Say whether it is a JVM or daemon of Spark: they come and go with ports of theirs."""
    daemons = ("pyspark.daemon", "pyspark/daemon", "tests.python_daemon")
    return any(name in command for name in ("org.apache.spark", *daemons))


def _listening(process: psutil.Process) -> set[int]:
    connections = process.net_connections(kind="tcp")
    ports = {connection.laddr.port for connection in connections if connection.status == psutil.CONN_LISTEN}
    return ports - _callback_ports() if process.pid == os.getpid() else ports


def _callback_ports() -> set[int]:
    """Return the port at which Spark's JVM calls functions of foreachBatch; PySpark keeps it as long as the JVM."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    gateway = getattr(context, "_gateway", None)
    server = vars(gateway).get("_callback_server") if gateway is not None else None
    return {server.port} if server is not None else set()


def _folders() -> set[str]:
    """Name our folders in the temporary folder, and those inside the scratch folders of Spark."""
    temporary = Path(tempfile.gettempdir())
    found = set(temporary.glob("emberflow-*"))
    for scratch in (*temporary.glob("emberflow-c*-*/"), *temporary.glob("spark-*/"), *_local_dirs()):
        found |= set(_ours_below(scratch))
    return {f"folder {path}" for path in found}


def _ours_below(scratch: Path) -> list[Path]:
    """Return our folders and files there, but for what Spark keeps as files of its session."""
    while True:
        try:
            paths = list(scratch.rglob("emberflow-*"))
        except FileNotFoundError:  # a folder went while it was looked through
            continue
        return [path for path in paths if not SESSION_FILE.search(str(path))]


def _local_dirs() -> list[Path]:
    return [Path(name) for name in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if name]
