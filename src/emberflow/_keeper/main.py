"""The keeper: a small process that starts one node and ends it, whatever happens around it.

It stands between a Spark task and the node, has one thread, and imports nothing but the standard library, so
no native code can keep it from acting. It waits for the first of:

- its standard input closes: the task has closed it, exited, or was killed;
- the node ends;
- the executor's JVM ends, or another process that the node must not outlive (where the kernel has pidfds).

Then it kills the node's whole process group and every descendant that left the group, reaps them, deletes the
node's folders and reports on its standard output how the node ended. If the keeper itself is killed the kernel
kills the node.

Run by path (``python -I -S main.py``), with one JSON line on standard input and two on standard output:
`KeeperOrder`, `NodeStarted` and `NodeExited` of ``_protocol/node_messages.py``, which the keeper does not import. Or
forked from a process that has imported TensorFlow already (``_node/warm_starter.py``): then the node is a fork too.
"""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import sys
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def main() -> bool:
    """Start the node that the line on standard input describes.

    Returns:
        False in the keeper, when nothing of the node is left; True in the node, where it is a fork of the keeper.
    """
    order = json.loads(_read_line(0))
    wake_r, wake_w = os.pipe()
    os.set_blocking(wake_w, False)
    signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # only the byte on the wakeup pipe matters
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    for fd in order["held_fds"]:
        os.set_inheritable(fd, False)  # the node must not keep open what shows others that it has ended

    node = _start(order, (wake_r, wake_w))
    if not node:
        return True
    _send({"kind": "node_started", "pid": node})
    status, is_outlived = _wait(node, wake_r, order["watched_fds"])
    _kill_everything(node)
    for folder in order["folders"]:
        shutil.rmtree(folder, ignore_errors=True)
    _send({"kind": "node_exited", "status": status, "executor_ended": is_outlived})
    return False


def _start(order: dict[str, Any], own_fds: tuple[int, ...]) -> int:
    """Fork and run the node in a process group of its own; return 0 in the node if it has no program to become."""
    keeper = os.getpid()
    node = os.fork()
    if node:
        with contextlib.suppress(OSError):  # the child does it too: the first call counts
            os.setpgid(node, node)
        for fd in order["node_fds"]:
            os.close(fd)
        return node
    try:
        os.setpgid(0, 0)
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:  # the keeper died between fork and prctl: no signal will come
            os._exit(1)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        devnull = os.open(os.devnull, os.O_RDONLY)
        os.dup2(devnull, 0)
        log = order["log_fd"]
        os.dup2(log, 1)
        os.dup2(log, 2)
        if order["argv"]:
            os.execve(order["argv"][0], order["argv"], order["environment"])
        for fd in (*own_fds, *order["held_fds"]):
            os.close(fd)
        os.environ.clear()
        os.environ.update(order["environment"])
    except BaseException:  # noqa: BLE001 - this process is no keeper
        os._exit(127)
    return 0


def _wait(node: int, wake_fd: int, watched_fds: list[int]) -> tuple[int | None, bool]:
    """Wait for the node's end.

    Returns:
        Its exit code, or None when it has to be ended; and whether that is because its executor has ended.
    """
    poll = select.poll()
    for fd in (0, wake_fd, *watched_fds):
        poll.register(fd, select.POLLIN | select.POLLHUP)
    while True:
        fired = {fd for fd, _ in poll.poll()}
        if wake_fd in fired:
            os.read(wake_fd, 4096)
            status = _reap(node)
            if status is not None:
                return status, False
        if fired - {wake_fd}:
            return None, bool(fired & set(watched_fds))


def _reap(node: int) -> int | None:
    """Reap all processes that have ended, also orphans of the node. Return the node's exit code if it has ended."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == node:
                return os.waitstatus_to_exitcode(status)
            if not pid:
                break
    return None


def _kill_everything(node: int) -> None:
    """Kill the node's group, then all processes that were reparented to the keeper, until none is left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(node, signal.SIGKILL)
    while children := _children():
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _children() -> list[int]:
    """Return the children of the keeper, running or not reaped yet."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as listing:  # noqa: PTH123 - no pathlib here
            return [int(pid) for pid in listing.read().split()]
    except OSError:
        return []


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _read_line(fd: int) -> bytes:
    line = bytearray()
    while not line.endswith(b"\n"):
        data = os.read(fd, 1 << 16)  # nothing follows the line but the end
        if not data:
            sys.exit(0)  # the task exited before it sent its order
        line += data
    return bytes(line)


def _send(message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main()
