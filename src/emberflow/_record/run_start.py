"""How the attempts of a run started: when each reached which phase, and what the run waits for."""

from collections.abc import Iterable
from typing import Any

PHASES = ("planned", "slots", "executors", "nodes", "rows", "first step")
OF_THE_RUN = ("planned", "slots")  # reached once; a restart begins with its executors


class RunStart:
    """The phases of all attempts, in the order in which they were reached.

    Attributes:
        phases: Attempt, name and time of each; the names are those of `PHASES`.
        waiting: What the run waits for before its nodes can start; None if for nothing that is known.
        is_shared: Whether the nodes start together; tasks that begin one after the other share no phase.
    """

    def __init__(self) -> None:
        self.phases: list[dict[str, Any]] = []
        self.waiting: str | None = None
        self.is_shared = True
        self._attempt = 0
        self._reached: set[str] = set()
        self._to_join: set[int] = set()
        self._to_be_ready: set[int] = set()

    def begin(self, attempt: int, ranks: Iterable[int]) -> None:
        """Begin an attempt; the same one again, where Spark refuses barriers, for example, replaces what was."""
        self._attempt, self.waiting = attempt, None
        self._reached = set(OF_THE_RUN)
        self.phases = [
            each for each in self.phases if each["attempt"] != attempt or each["name"] in OF_THE_RUN
        ]
        self._to_join, self._to_be_ready = set(ranks), set(ranks)

    def join(self, rank: int, t: float) -> None:
        """Note that the task of a node is there."""
        self.waiting = None
        self._to_join.discard(rank)
        if not self._to_join:
            self.reach("executors", t)

    def be_ready(self, rank: int, t: float) -> None:
        """Note that the process of a node is up."""
        self._to_be_ready.discard(rank)
        if not self._to_be_ready:
            self.reach("nodes", t)

    def reach(self, phase: str, t: float) -> None:
        """Note that a phase is over, unless that is known."""
        self.waiting = None
        if phase not in self._reached:
            self._reached.add(phase)
            if self.is_shared:
                self.phases.append({"attempt": self._attempt, "name": phase, "t": round(t, 3)})

    def has_reached(self, phase: str) -> bool:
        """Tell whether the newest attempt has come so far."""
        return phase in self._reached
