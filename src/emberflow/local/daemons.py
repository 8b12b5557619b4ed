"""Child processes in the background that never outlive their owner, and their folder."""

import contextlib
import os
import queue
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from emberflow._plan import deadlines
from emberflow.errors import ClusterError, StartTimeoutError

TAIL_LINES = 25  # of a log in an error: they fit on one screen

# Settings of another Spark or Hadoop, and options for every JVM or TensorFlow, must not affect ours.
_FOREIGN = re.compile(
    r"SPARK_|PYSPARK_|HADOOP_|YARN_|_?JAVA_|JDK_JAVA_OPTIONS|TF_CONFIG|EMBERFLOW_RUN|_PYSPARK"
)

MARK = "EMBERFLOW_DAEMONS"  # in the environment of all children at any depth: the folder of their group

# Waits for the end of its input, which comes when the owner closes the pipe or is killed. Then it kills what carries
# the mark: containers of YARN are in sessions of their own, so a process group would not do. A process may be
# creating a file when it is killed, so the folder is deleted in several tries.
_KEEPER = """
trap '' HUP INT TERM
read -r _
for _ in 1 2 3 4 5 6 7 8 9 10; do
  marked=$(grep -l -z -x -F "$2=$1" /proc/[0-9]*/environ 2>/dev/null)
  [ -n "$marked" ] || break
  for file in $marked; do
    process=${file#/proc/}
    kill -9 "${process%/environ}" 2>/dev/null
  done
  sleep 0.1
done
for _ in 1 2 3 4 5 6 7 8 9 10; do rm -rf -- "$1" 2>/dev/null && break; sleep 0.1; done
"""


class Daemon(NamedTuple):
    """One child: its process, its log, and the match of its first matching line (None: it exited without one)."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    ready_match: "queue.SimpleQueue[str | None]"


class DaemonGroup:
    """Children with one folder; a keeper process ends them, and what they have started, when the owner exits."""

    def __init__(self, folder: Path, keeper: subprocess.Popen[bytes]) -> None:
        self.folder = folder
        self._keeper = keeper
        self._daemons: list[Daemon] = []

    def start(self, name: str, command: Sequence[str], env: Mapping[str, str], ready_pattern: str) -> Daemon:
        """Start one child; its output goes to ``<name>.log`` in the folder.

        Args:
            name: Its name in messages.
            command: Program and arguments.
            env: Its complete environment.
            ready_pattern: A regular expression with one group; `wait_until_ready` returns what the group matched.
        """
        process = subprocess.Popen(
            command,
            env=self.marked(env),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,  # its own group: the owner alone handles Ctrl-C in the terminal
        )
        daemon = Daemon(name, process, self.folder / f"{name}.log", queue.SimpleQueue())
        self._daemons.append(daemon)
        threading.Thread(
            target=_pump, args=(daemon, re.compile(ready_pattern)), name=f"log of {name}", daemon=True
        ).start()
        return daemon

    def marked(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return an environment whose processes end with this group."""
        return {**env, MARK: str(self.folder)}

    def kill(self, daemon: Daemon) -> None:
        """Kill one child, as a crash of its machine does; returns when it has ended."""
        daemon.process.kill()
        daemon.process.wait()
        self._daemons.remove(daemon)

    def end(self) -> None:
        """Kill all children and delete the folder; returns when that is done."""
        _opened(self._keeper.stdin).close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._keeper.wait(deadlines.DAEMONS_END_TIMEOUT)
        for daemon in self._daemons:
            daemon.process.kill()  # the keeper has done so, unless it was killed
            daemon.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def daemon_group(prefix: str, parent: Path | None = None) -> Iterator[DaemonGroup]:
    """Hold a group of children, and a folder that only this user can enter, for the length of the block.

    Args:
        prefix: The beginning of the folder's name.
        parent: Where the folder is made; None is the folder for temporary files.
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    keeper = subprocess.Popen(
        ["/bin/sh", "-c", _KEEPER, "emberflow-keeper", str(folder), MARK],
        stdin=subprocess.PIPE,
        start_new_session=True,
        cwd="/",
    )
    group = DaemonGroup(folder, keeper)
    try:
        yield group
    finally:
        group.end()


def wait_until_ready(daemon: Daemon, deadline: float) -> str:
    """Return the match of the child's first matching line, or raise an error with the end of its log.

    Args:
        daemon: The child.
        deadline: The end of the wait, as of `time.monotonic`.
    """
    try:
        matched = daemon.ready_match.get(timeout=max(0.0, deadline - time.monotonic()))
    except queue.Empty:
        raise StartTimeoutError(
            f"{daemon.name} was not ready in time. The end of its log:\n{log_tail(daemon.log)}",
            fix="Look at the log above; on a slow machine pass a longer start_timeout.",
        ) from None
    if matched is None:
        code = daemon.process.wait()
        ended = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        raise ClusterError(
            f"{daemon.name} {ended} while it started. The end of its log:\n{log_tail(daemon.log)}",
            fix="Look at the log above; `emberflow doctor` checks Java, ports and host names.",
        )
    return matched


def own_environment() -> dict[str, str]:
    """Return the environment of this process without the settings of another Spark or Hadoop."""
    return {name: value for name, value in os.environ.items() if not _FOREIGN.match(name)}


def log_tail(log: Path) -> str:
    """Return the last lines of a log."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return "(no log)"
    return "\n".join(lines[-TAIL_LINES:]) or "(empty)"


def _pump(daemon: Daemon, wanted: re.Pattern[str]) -> None:
    """Copy the child's output to its log, and pass on the match of the first matching line."""
    found = False
    with _opened(daemon.process.stdout) as lines, daemon.log.open("wb", buffering=0) as log:
        for line in lines:
            log.write(line)
            match = None if found else wanted.search(line.decode(errors="replace"))
            if match:
                found = True
                daemon.ready_match.put(match[1])
    daemon.ready_match.put(None)


def _opened(pipe: IO[bytes] | None) -> IO[bytes]:
    """Return a pipe that Popen was asked to open."""
    if pipe is None:
        raise ClusterError("A child process has no pipe.", fix="This is a bug in emberflow: report it.")
    return pipe
