"""Whether a node is alive: asked now and then, and missed when it does not answer.

A stopped process keeps its sockets, and its kernel goes on to acknowledge what comes: nothing but the lack of an
answer tells that it is stopped.
"""

import time
from collections.abc import Callable

SHARE = 4  # questions within the limit, so that a node is missed after three quarters of it at the earliest


class Pulse:
    """Asks a node for a sign of life, beginning with the first that it gives.

    Args:
        limit: Seconds without a sign after which a node counts as stopped.
        ask: Asks it.
    """

    def __init__(self, limit: float, ask: Callable[[], None]) -> None:
        self.limit = limit
        self._ask = ask
        self._heard: float | None = None
        self._asked: float | None = None
        self._is_stopped = False

    def hear(self) -> None:
        """Note a sign of life."""
        self._heard, self._asked = time.monotonic(), None

    def stop(self) -> None:
        """Ask no more: it has ended, or is about to."""
        self._is_stopped = True

    def wait(self) -> float | None:
        """Return the seconds until `is_missed` wants to be called again; None while there is nothing to ask."""
        if self._is_stopped or self._heard is None:
            return None
        due = self.limit / SHARE
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
            self._ask()
            return False
        self.stop()
        return True
