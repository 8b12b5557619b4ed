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
from emberflow._task.warm_start import WarmAccess, WarmKeeper, start_warm_keeper

Keeper = subprocess.Popen[bytes] | WarmKeeper
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
    keeper: Keeper

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
    warm: WarmAccess | None = None,
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
        warm: Processes that have imported TensorFlow; one on this host starts the node, if there is one.
    """
    temporary = tempfile.mkdtemp(prefix="emberflow-")
    node = _start(folder, environment | {"TMPDIR": temporary}, also_held, watched, warm)
    try:
        yield node
    finally:
        node.close()
        shutil.rmtree(temporary, ignore_errors=True)  # a keeper that was killed left it


def _start(
    folder: Path,
    environment: dict[str, str],
    also_held: tuple[int, ...],
    watched: tuple[int, ...],
    warm: WarmAccess | None,
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
    keeper: Keeper | None = start_warm_keeper(order, warm) if warm else None
    keeper = keeper or _start_keeper(order, environment)
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
