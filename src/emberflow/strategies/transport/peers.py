"""The failure that all connections of one rank share: what happened first, and who is told of it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from emberflow._protocol.sealed import TAMPERED, TAMPERED_FIX, TamperedError
from emberflow.errors import PeerError

if TYPE_CHECKING:
    from emberflow.strategies.transport.ring_link import RingLink

ALTERED = f"sent {TAMPERED}"


class Peers:
    """All links of one rank. When one fails all are closed, so that whoever waits for this rank learns of it.

    Args:
        rank: Our number.
        addresses: All ranks' addresses in rank order, for errors.
        timeout: Seconds after which a rank that does not answer is an error.

    Attributes:
        failure: Why the first link failed, or that all are closed; every later call raises it.
    """

    def __init__(self, rank: int, addresses: Sequence[str], timeout: float) -> None:
        self.rank = rank
        self.timeout = timeout
        self.failure: PeerError | None = None
        self.links: list[RingLink] = []
        self._addresses = addresses

    def fail(self, culprit: int, what: str, exchange: int = 0) -> PeerError:
        """Tell all neighbours which rank failed, close, and return the error for this and all later calls."""
        if self.failure is None:
            address = self._addresses[culprit % len(self._addresses)]
            problem = (
                f"Rank {culprit} {what}; rank {self.rank} cannot continue without it. "
                f"Received: rank={culprit}, address={address!r}, exchange={exchange}"
            )
            fix = (
                f"Look at the log of rank {culprit} first. All ranks must call fit and evaluate in "
                "the same order, with the same number of steps."
            )
            altered = what == ALTERED
            self.failure = TamperedError(problem, TAMPERED_FIX) if altered else PeerError(problem, fix)
            for link in self.links:
                link.abort(culprit)
        return self.failure

    def close(self) -> None:
        """Tell all neighbours that this rank has finished. May be called twice."""
        if self.failure is None:
            self.failure = PeerError(
                f"The connection to the other ranks is closed. Received: rank={self.rank}",
                "Train inside your function; after it has returned there are no other ranks.",
            )
            for link in self.links:
                link.finish()

    def say_waiting(self) -> None:
        """Tell those who may wait for us that we are alive and wait for others."""
        for link in self.links:
            link.say_waiting()
