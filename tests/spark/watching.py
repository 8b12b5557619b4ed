"""Watching a run from outside: which processes it has, when it began, how long it took to tell of its end."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import psutil

import emberflow as ef

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Value = TypeVar("Value")

START = 120.0  # seconds for a node to begin on a busy machine
GOAL = 10.0  # seconds for an error to be on the driver: the goal is 5, machines that run tests are slow


def begin(folder: Path, rank: int) -> None:
    """Say, from inside a node, that your function has begun there."""
    note = folder / f"begun-{rank}.tmp"
    note.write_text(json.dumps({"pid": os.getpid(), "at": time.time()}))
    note.rename(folder / f"begun-{rank}")


def await_file(path: Path, timeout: float = START) -> Path:
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} is not there after {timeout} s"
        pause.wait(0.01)
    return path


@dataclass(frozen=True)
class Begun:
    """A node that has begun, and the processes above it."""

    node: psutil.Process
    at: float

    @property
    def keeper(self) -> psutil.Process:
        return parent_of(self.node)

    @property
    def python_worker(self) -> psutil.Process:
        return parent_of(self.keeper)

    @property
    def executor(self) -> psutil.Process:
        executor = parent_of(parent_of(self.python_worker))  # between them is PySpark's daemon
        assert "java" in executor.name()
        return executor


class BegunLive(Begun):
    """A node of a live cluster: an attendant stands between the Spark Python worker and the keeper."""

    @property
    def attendant(self) -> psutil.Process:
        attendant = parent_of(self.keeper)
        assert "emberflow._task.attendant" in attendant.cmdline()
        return attendant

    @property
    def chain(self) -> tuple[psutil.Process, ...]:
        """What must not be left: the parents of a process are known only as long as it lives."""
        return self.node, self.keeper, self.attendant

    @property
    def python_worker(self) -> psutil.Process:
        return parent_of(self.attendant)

    @property
    def worker(self) -> psutil.Process:
        """The Worker of a standalone cluster, which has started the executor."""
        worker = parent_of(self.executor)
        assert "org.apache.spark.deploy.worker.Worker" in worker.cmdline()
        return worker


def parent_of(process: psutil.Process) -> psutil.Process:
    parent = process.parent()
    assert parent is not None
    return parent


def await_begun(folder: Path, rank: int) -> Begun:
    note = json.loads(await_file(folder / f"begun-{rank}").read_text())
    return Begun(psutil.Process(note["pid"]), note["at"])


def await_begun_live(folder: Path, rank: int) -> BegunLive:
    begun = await_begun(folder, rank)
    return BegunLive(begun.node, begun.at)


def await_gone(process: psutil.Process, timeout: float = GOAL) -> None:
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, f"{process} still runs after {timeout} s"
        pause.wait(0.01)


def kill_node(name: str, run: str | None = None, with_signal: signal.Signals = signal.SIGKILL) -> None:
    """Kill the process of a node such as ``ps 2``, of this node's own run if none is given."""
    run = run or os.environ["EMBERFLOW_RUN"]
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            environment = process.environ()
            is_node = "emberflow._node.main" in process.cmdline()
            if is_node and (environment.get("EMBERFLOW_RUN"), environment.get("EMBERFLOW_NODE")) == (
                run,
                name,
            ):
                process.send_signal(with_signal)
                return
    raise AssertionError(f"there is no {name} of run {run}")


@contextmanager
def driver(folder: Path, master: str, scene: str) -> "Iterator[subprocess.Popen[bytes]]":
    """Run a driver of its own (`lonely_driver`); end its whole session afterwards, whatever it did."""
    log = (folder / "driver.log").open("wb")
    command = [sys.executable, "-m", "tests.spark.lonely_driver", str(folder), master, scene]
    process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        log.close()
        for kind in (signal.SIGTERM, signal.SIGKILL):
            if process.poll() is None:
                os.killpg(process.pid, kind)
                process.wait(START)


@dataclass(frozen=True)
class Noted:
    """An error that a driver of its own has written down: the name of its class, its text, and when."""

    kind: str
    text: str
    at: float


def await_noted(path: Path, timeout: float = GOAL) -> Noted:
    return Noted(**json.loads(await_file(path, timeout).read_text()))


def start_run(spark: "SparkSession", fn: Callable[[Any], Any], **options: Any) -> "Future[ef.Result]":
    """Start a run on a thread."""
    return start_call(lambda: ef.run(fn, **{"workers": 2, "spark": spark, "verbose": False} | options))


def start_call(call: Callable[[], Value]) -> "Future[Value]":
    """Make a call on a thread."""
    future: Future[Value] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - it is handed on
            future.set_exception(error)

    threading.Thread(target=run, name="test-run", daemon=True).start()
    return future


def error_of(run: "Future[Any]", since: float, what: str) -> ef.EmberflowError:
    """Return the error of a run or call, and see that it came in time: `since` is the moment of the fault."""
    error = run.exception(timeout=START)
    seconds = time.time() - since
    print(f"{what}: on the driver after {seconds:.2f} s")
    assert isinstance(error, ef.EmberflowError), error
    assert seconds < GOAL
    return error
