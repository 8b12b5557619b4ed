"""Starting a keeper and its node from a process that has imported TensorFlow already, on this host."""

import dataclasses
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import IO

from emberflow._node.warm_starter import FIRST_FD, PURPOSE
from emberflow._plan import deadlines
from emberflow._protocol.messages import encode
from emberflow._protocol.node_messages import KeeperOrder
from emberflow._protocol.sockets import dial_abstract, readable
from emberflow._task.executor import executor_pid
from emberflow._task.gpu_locks import lock, try_lock
from emberflow.errors import PeerError


@dataclass(frozen=True, kw_only=True)
class WarmStarter:
    """A process of an idle cluster that has imported TensorFlow.

    Attributes:
        name: Its name among the abstract Unix sockets of its host.
        host: Where it is.
        jvm: Process id of its executor's JVM.
        devices: The GPUs that its idle node holds, as CUDA_VISIBLE_DEVICES names them.
    """

    name: str
    host: str
    jvm: int
    devices: str = ""


@dataclass(frozen=True, kw_only=True)
class WarmAccess:
    """The warm starters of an idle cluster. It travels inside Spark's own serialised closure only.

    Attributes:
        starters: One per idle node.
        key: With which both sides authenticate.
    """

    starters: tuple[WarmStarter, ...]
    key: bytes = field(repr=False)


class WarmKeeper:
    """A keeper that is not a child of this process; what is used of it is as in `subprocess.Popen`.

    Attributes:
        stdin: Closing it ends the node.
        stdout: What the keeper reports.
    """

    def __init__(self, stdin: IO[bytes], stdout: IO[bytes], pidfd: int) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self._process = open(pidfd, closefd=True)  # noqa: SIM115 - a descriptor, closed by `wait`

    def wait(self, timeout: float | None = None) -> None:
        """Wait until it has ended."""
        if self._process.closed:
            return
        if not readable([self._process], timeout):
            raise subprocess.TimeoutExpired("keeper", timeout or 0.0)
        self._process.close()

    def kill(self) -> None:
        """Kill it; the kernel then kills the node."""
        signal.pidfd_send_signal(self._process.fileno(), signal.SIGKILL)


def start_warm_keeper(order: KeeperOrder, access: WarmAccess) -> WarmKeeper | None:
    """Have a warm starter of this host fork a keeper; None where there is none that answers."""
    if sys.platform != "linux":
        return None
    mine, devices = executor_pid(), order.environment.get("CUDA_VISIBLE_DEVICES", "")
    for starter in sorted(access.starters, key=lambda each: (each.devices != devices, each.jvm != mine)):
        try:
            return _start(starter.name, access.key, order)
        except (OSError, PeerError):  # it is on another host, or has ended
            continue
    return None


def borrowed_gpus(
    access: WarmAccess, host: str, given: Sequence[str], held: ExitStack
) -> tuple[str, ...] | None:
    """Return the GPUs of an idle node of this executor, for one run at a time; None where it has none for us.

    The idle node holds their locks, so that nobody else takes them; here only its runs are kept apart.

    Args:
        access: The idle cluster.
        host: Ours, as Spark names it.
        given: The GPUs that Spark gave to this task; none where Spark manages no GPUs.
        held: Frees them at its end.

    Raises:
        ClusterError: Other runs hold all of them.
    """
    jvm = executor_pid()
    there = [each for each in access.starters if each.devices and (each.host, each.jvm) == (host, jvm)]
    if given:
        if not any(set(given) & set(each.devices.split(",")) for each in there):
            return None  # they are not the cluster's: this node takes them as every node does
        there.sort(key=lambda each: each.devices != ",".join(given))
    if not there:
        return None
    for starter in there:
        if (lent := try_lock(starter.name)) is not None:
            held.enter_context(lent)
            return tuple(starter.devices.split(","))
    held.enter_context(lock(there[0].devices, there[0].name))
    return tuple(there[0].devices.split(","))


def _start(name: str, key: bytes, order: KeeperOrder) -> WarmKeeper:
    stdin_r, stdin_w = os.pipe()
    stdout_r, stdout_w = os.pipe()
    stdin, stdout = os.fdopen(stdin_w, "wb", buffering=0), os.fdopen(stdout_r, "rb", buffering=0)
    passed = (*order.node_fds, *order.held_fds)
    try:
        with dial_abstract(name, key, PURPOSE, deadlines.HANDSHAKE_TIMEOUT) as sock:
            sock.settimeout(deadlines.HANDSHAKE_TIMEOUT)
            socket.send_fds(sock, [b"\0"], [stdin_r, stdout_w, *passed])
            _, fds, _, _ = socket.recv_fds(sock, 1, 1)
        if not fds:
            raise ConnectionResetError("the warm starter has ended")
        keeper = WarmKeeper(stdin, stdout, fds[0])
        stdin.write(encode(_renumbered(order, passed)) + b"\n")
    except BaseException:
        stdin.close()  # a keeper that was forked already ends with it
        stdout.close()
        raise
    finally:
        os.close(stdin_r)
        os.close(stdout_w)
    return keeper


def _renumbered(order: KeeperOrder, passed: Sequence[int]) -> KeeperOrder:
    """Return the order with the numbers that the descriptors have in the keeper."""
    numbers = {fd: FIRST_FD + 2 + place for place, fd in enumerate(passed)}
    return dataclasses.replace(
        order,
        argv=[],
        held_fds=tuple(numbers[fd] for fd in order.held_fds),
        log_fd=numbers[order.log_fd],
        node_fds=tuple(numbers[fd] for fd in order.node_fds),
        watched_fds=tuple(numbers[fd] for fd in order.watched_fds),
    )
