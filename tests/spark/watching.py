"""Watching a run from outside: which processes it has, when it began, how long it took to tell of its end."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

import emberflow as ef

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


def parent_of(process: psutil.Process) -> psutil.Process:
    parent = process.parent()
    assert parent is not None
    return parent


def await_begun(folder: Path, rank: int) -> Begun:
    note = json.loads(await_file(folder / f"begun-{rank}").read_text())
    return Begun(psutil.Process(note["pid"]), note["at"])


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


def start_run(spark: "SparkSession", fn: Callable[[Any], Any], **options: Any) -> "Future[ef.Result]":
    """Start a run on a thread."""
    future: Future[ef.Result] = Future()

    def run() -> None:
        try:
            future.set_result(ef.run(fn, **{"workers": 2, "spark": spark, "verbose": False} | options))
        except BaseException as error:  # noqa: BLE001 - it is handed on
            future.set_exception(error)

    threading.Thread(target=run, name="test-run", daemon=True).start()
    return future


def error_of(run: "Future[ef.Result]", since: float, what: str) -> ef.EmberflowError:
    """Return the error of a run, and see that it came in time: `since` is the moment of the fault."""
    error = run.exception(timeout=START)
    seconds = time.time() - since
    print(f"{what}: on the driver after {seconds:.2f} s")
    assert isinstance(error, ef.EmberflowError), error
    assert seconds < GOAL
    return error
