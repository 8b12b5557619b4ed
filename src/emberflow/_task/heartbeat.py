"""Whether a node is alive: asked now and then, and missed when it does not answer.

A stopped process keeps its sockets, and its kernel goes on to acknowledge what comes: nothing but the lack of an
answer tells that it is stopped. Native code that computes for long without letting other threads run does not
answer either; it uses the processor meanwhile, and is left alone.
"""

import time
from collections.abc import Callable
from pathlib import Path

from emberflow._plan import deadlines


class Heartbeat:
    """Asks a node for a sign of runner, beginning with the first that it gives.

    Args:
        limit: Seconds without a sign after which a node counts as stopped.
        ask: Asks it.

    Attributes:
        pid: The node's process on this host, once it is known.
    """

    def __init__(self, limit: float, ask: Callable[[], None]) -> None:
        self.limit = limit
        self.pid: int | None = None
        self._ask = ask
        self._ticks = 0
        self._heard: float | None = None
        self._asked: float | None = None
        self._is_stopped = False

    def hear(self) -> None:
        """Note a sign of runner."""
        self._heard, self._asked = time.monotonic(), None

    def stop(self) -> None:
        """Ask no more: it has ended, or is about to."""
        self._is_stopped = True

    def wait(self) -> float | None:
        """Return the seconds until `is_missed` wants to be called again; None while there is nothing to ask."""
        if self._is_stopped or self._heard is None:
            return None
        due = self.limit * deadlines.HEARTBEAT_SHARE
        since = self._heard if self._asked is None else self._asked
        due = due if self._asked is None else self.limit - due
        return max(since + due - time.monotonic(), 0.0)

    def is_missed(self) -> bool:
        """Ask if it is time to; tell whether the answer is overdue.

        To be called only when all that the node has sent was heard: whoever could not listen for a while must
        not blame the node for it.
        """
        if self.wait() != 0.0:
            return False
        if self._asked is None:
            self._asked = time.monotonic()
            self._ticks = _ticks_of(self.pid)
            self._ask()
            return False
        if _ticks_of(self.pid) > self._ticks:
            self.hear()
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
