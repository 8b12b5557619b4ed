"""Whether a node still runs: its task asks it at intervals, and detects that it does not answer.

A stopped process keeps its sockets, and its kernel goes on to acknowledge what comes: nothing but the lack of an
answer tells that it is stopped. Native code that computes for long without letting other threads run does not
answer either; it uses the processor meanwhile, and is left alone.
"""

import time
from collections.abc import Callable
from pathlib import Path

from emberflow._plan import deadlines


class Heartbeat:
    """Pings a node, beginning with the first message that it sends.

    Args:
        limit: Seconds without a message after which a node counts as stopped.
        ping: Sends it a ping.

    Attributes:
        pid: The node's process on this host, once it is known.
    """

    def __init__(self, limit: float, ping: Callable[[], None]) -> None:
        self.limit = limit
        self.pid: int | None = None
        self._ping = ping
        self._ticks = 0
        self._received: float | None = None
        self._pinged: float | None = None
        self._is_stopped = False

    def record(self) -> None:
        """Note that the node has sent something."""
        self._received, self._pinged = time.monotonic(), None

    def stop(self) -> None:
        """Ping no more: the node has ended, or is about to."""
        self._is_stopped = True

    def wait(self) -> float | None:
        """Return the seconds until `is_missed` must be called again; None while no ping is due."""
        if self._is_stopped or self._received is None:
            return None
        due = self.limit * deadlines.HEARTBEAT_SHARE
        since = self._received if self._pinged is None else self._pinged
        due = due if self._pinged is None else self.limit - due
        return max(since + due - time.monotonic(), 0.0)

    def is_missed(self) -> bool:
        """Ping the node if it is time to; tell whether the answer is overdue.

        To be called only when all that the node has sent is read: a task that was busy must not blame the node.
        """
        if self.wait() != 0.0:
            return False
        if self._pinged is None:
            self._pinged = time.monotonic()
            self._ticks = _ticks_of(self.pid)
            self._ping()
            return False
        if _ticks_of(self.pid) > self._ticks:
            self.record()
            return False
        self.stop()
        return True


def _ticks_of(pid: int | None) -> int:
    """Return the processor time that a process has used, in ticks; 0 if it is stopped, or nothing is known of it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    is_stopped = fields[0] in "Tt"
    return 0 if is_stopped else int(fields[11]) + int(fields[12])
