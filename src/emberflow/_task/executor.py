"""The executor around a task: its JVM is the parent of pyspark's daemon, and that is the parent of the task."""

import os
from contextlib import suppress
from pathlib import Path


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
