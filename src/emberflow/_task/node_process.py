"""Starting a keeper with its node, from the task's side, and ending both."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from emberflow._plan import deadlines
from emberflow._protocol.messages import encode
from emberflow._protocol.node_messages import KeeperOrder

KEEPER = Path(__file__).parent.parent / "_keeper" / "main.py"


@dataclass(frozen=True)
class NodeProcess:
    """A running node, seen from the task.

    Attributes:
        control: Messages to and from the node.
        feed: Rows to the node.
        log_fd: What the node and its own children print.
        status_fd: The messages of the keeper: `NodeStarted`, then `NodeExited`.
        keeper: The keeper's process; closing its standard input ends the node.
    """

    control: socket.socket
    feed: socket.socket
    log_fd: int
    status_fd: int
    keeper: subprocess.Popen[bytes]

    def end(self) -> None:
        """Have the keeper kill the node now, stopped or not; it reports that on `status_fd`. May be called twice."""
        if self.keeper.stdin is not None:
            with suppress(BrokenPipeError):
                self.keeper.stdin.close()

    def close(self) -> None:
        """End the node, wait until the keeper has ended too, and close what connects us to both."""
        self.end()
        self.control.close()
        self.feed.close()
        try:
            self.keeper.wait(deadlines.KEEPER_END_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.keeper.kill()  # the kernel then kills the node
            self.keeper.wait()
        if self.keeper.stdout is not None:
            self.keeper.stdout.close()
        os.close(self.log_fd)


@contextmanager
def running_node(
    folder: Path,
    environment: dict[str, str],
    also_held: tuple[int, ...] = (),
    watched: tuple[int, ...] = (),
) -> Iterator[NodeProcess]:
    """Run a node for the length of the block; afterwards neither it nor its folders are there.

    A killed process leaves its temporary files behind (TensorFlow's generated code, for one), so the node has a
    temporary folder of its own. That is not inside `folder`: Spark's local folders have names too long for the
    sockets that Python's multiprocessing puts there.

    Args:
        folder: The node's own folder, deleted at the end.
        environment: All of the node's environment variables but TMPDIR.
        also_held: Descriptors that the keeper keeps open until it ends, so that a process that waits for their
            end of file knows that everything is cleaned up.
        watched: Descriptors of processes that the node must not outlive.
    """
    temporary = tempfile.mkdtemp(prefix="emberflow-")
    node = _start(folder, environment | {"TMPDIR": temporary}, also_held, watched)
    try:
        yield node
    finally:
        node.close()
        shutil.rmtree(temporary, ignore_errors=True)  # a keeper that was killed left it


def _start(
    folder: Path, environment: dict[str, str], also_held: tuple[int, ...], watched: tuple[int, ...]
) -> NodeProcess:
    """Start the keeper, which starts the node, and close our copies of their ends of sockets and pipes."""
    control, theirs = socket.socketpair()
    feed, their_feed = socket.socketpair()
    log_r, log_w = os.pipe()
    node_fds = (theirs.fileno(), their_feed.fileno(), log_w)
    order = KeeperOrder(
        argv=[sys.executable, "-u", "-m", "emberflow._node.main", str(node_fds[0]), str(node_fds[1])],
        environment=environment,
        folders=[str(folder), environment["TMPDIR"]],
        held_fds=(*watched, *also_held),
        log_fd=log_w,
        node_fds=node_fds,
        watched_fds=watched,
    )
    keeper = _start_keeper(order, environment)
    theirs.close()
    their_feed.close()
    os.close(log_w)
    assert keeper.stdout is not None  # noqa: S101 - it is a pipe, for the type checker
    return NodeProcess(control, feed, log_r, keeper.stdout.fileno(), keeper)


def _start_keeper(order: KeeperOrder, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    keeper = subprocess.Popen(
        [sys.executable, "-I", "-S", str(KEEPER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        env=environment,
        pass_fds=(*order.node_fds, *order.held_fds),
        start_new_session=True,
    )
    assert keeper.stdin is not None  # noqa: S101 - it is a pipe, for the type checker
    with suppress(BrokenPipeError):  # it has ended already, which is read from `status_fd`
        keeper.stdin.write(encode(order) + b"\n")
    return keeper


def executor_pidfds(*, with_daemon: bool = False) -> tuple[int, ...]:
    """Return a descriptor that becomes readable when the executor's JVM ends; none where the kernel has no pidfds.

    The Spark Python worker's parent is pyspark's daemon, whose parent is the JVM. The daemon's parent is read
    twice, so that the descriptor cannot be that of a process which took over a freed pid.

    Args:
        with_daemon: Return a second one, for pyspark's daemon: in local mode the JVM is the driver's, and the daemon
            alone ends when the session is stopped.
    """
    daemon = os.getppid()
    found: list[int] = []
    with suppress(OSError, AttributeError, ValueError, IndexError):
        jvm = _parent_of(daemon)
        for pid in (jvm, daemon) if with_daemon else (jvm,):
            found.append(os.pidfd_open(pid))  # noqa: PERF401 - those opened before an error are closed below
        if _parent_of(daemon) == jvm:
            return tuple(found)
    for fd in found:
        os.close(fd)
    return ()


def executor_pid() -> int:
    """Return the process id of the executor's JVM, or of the process in its place."""
    daemon = os.getppid()
    with suppress(OSError, ValueError, IndexError):
        return _parent_of(daemon)
    return daemon


def _parent_of(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])  # the name in brackets may hold blanks
