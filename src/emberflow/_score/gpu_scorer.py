"""The task's side of scoring on GPUs: find the executor's process for them, or start it, and send it batches."""

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from emberflow._plan import deadlines
from emberflow._protocol.handshake import HandshakeClosedError, prove_as_client
from emberflow._score.child_predictor import scorer_over
from emberflow._score.gpu_server import KEY, PURPOSE
from emberflow._score.predictor import cache_folder
from emberflow._score.scoring import ScoreSpec
from emberflow._task.executor import executor_pid, executor_pidfds
from emberflow._task.gpus import gpu_environment
from emberflow._task.node_process import KEEPER
from emberflow._task.node_setup import SECRETS
from emberflow.errors import ClusterError

_SOCKET = "s"
_TRIES = 3  # a process that is killed between the connection and its greeting is rare, twice in a row rarer


@contextmanager
def gpu_scorer(spec: ScoreSpec, devices: tuple[str, ...]) -> Iterator[Callable[[Any], Any]]:
    """Yield a function that scores a batch in the process that holds these GPUs for the whole executor."""
    with connected(devices) as sock:
        yield scorer_over(sock, spec, threads=0)


@contextmanager
def connected(devices: tuple[str, ...]) -> Iterator[socket.socket]:
    """Connect to the executor's process for these GPUs, which is started if there is none."""
    for left in reversed(range(_TRIES)):
        sock, key = _connect(devices)
        with sock:
            try:
                prove_as_client(sock, key, PURPOSE, limit=deadlines.SCORER_START_TIMEOUT)
            except HandshakeClosedError:  # it was killed just now
                if left:
                    continue
                raise
            yield sock
            return


def _connect(devices: tuple[str, ...]) -> tuple[socket.socket, bytes]:
    parent = cache_folder()
    mark = hashlib.blake2b(",".join(devices).encode(), digest_size=6).hexdigest()
    prefix = f"emberflow-gpus-{executor_pid()}-{mark}-"
    with _locked(parent):
        for folder in parent.glob(f"{prefix}*"):
            with suppress(OSError):
                return _dial(folder)
            shutil.rmtree(folder, ignore_errors=True)  # of a process that has ended
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        temporary = Path(tempfile.mkdtemp(prefix="emberflow-"))
        try:
            _start(folder, temporary, devices)
        except BaseException:  # once started, the keeper deletes them
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        return _dial(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, which leaves no lock file behind."""
    deadline = time.monotonic() + deadlines.SCORER_START_TIMEOUT
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"Another process must release a lock. Received: {folder}, locked for "
                    f"{deadlines.SCORER_START_TIMEOUT:g} s.",
                    fix="Look for a process that hangs on this host: lslocks shows who holds it.",
                )
            time.sleep(deadlines.SCORER_LOCK_POLL)  # flock has no timeout of its own
        yield
    finally:
        os.close(descriptor)


def _dial(folder: Path) -> tuple[socket.socket, bytes]:
    key = (folder / KEY).read_bytes()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(folder) as path:
            sock.connect(path)
    except BaseException:
        sock.close()
        raise
    return sock, key


@contextmanager
def _short(folder: Path) -> Iterator[str]:
    """Yield a path to the socket that fits into the kernel's 108 bytes; Spark's folders have longer names."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{_SOCKET}"
    finally:
        os.close(descriptor)


def _start(folder: Path, temporary: Path, devices: tuple[str, ...]) -> None:
    """Start a server behind a keeper, with a socket that is listening already."""
    (folder / KEY).write_bytes(secrets.token_bytes(32))
    environment = _environment(devices) | {"TMPDIR": str(temporary)}
    with contextlib.ExitStack() as ours:
        listener = ours.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        with _short(folder) as path:
            listener.bind(path)
        listener.listen()
        # The keeper ends the server when its standard input ends. The server itself holds the other end.
        stdin, alive = os.pipe()
        log, held = os.dup(2), executor_pidfds()
        node_fds = (listener.fileno(), alive, log)
        for descriptor in (alive, log, *held):
            ours.callback(os.close, descriptor)
        argv = [
            sys.executable,
            "-u",
            "-m",
            "emberflow._score.gpu_server",
            str(folder),
            str(listener.fileno()),
            str(executor_pid()),
        ]
        order = {
            "argv": [*argv, *devices],
            "environment": environment,
            "folders": [str(folder), str(temporary)],
            "held_fds": held,
            "log_fd": log,
            "node_fds": node_fds,
            "watched_fds": held,
        }
        with os.fdopen(stdin):
            keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", str(KEEPER)],
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                env=environment,
                pass_fds=(*node_fds, *held),
                start_new_session=True,
            )
        os.write(alive, json.dumps(order).encode() + b"\n")
    # It outlives this task, and its exit status must be collected.
    threading.Thread(target=keeper.wait, name="emberflow-keeper", daemon=True).start()


def _environment(devices: tuple[str, ...]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in SECRETS}
    kept.setdefault(
        "TF_CPP_MIN_LOG_LEVEL", "2"
    )  # otherwise TensorFlow fills the executor's log with CPU features
    return kept | gpu_environment(devices) | {"EMBERFLOW_RUN": "scoring"}
