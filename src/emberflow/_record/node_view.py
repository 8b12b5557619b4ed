"""One node, its output and its metrics, as the page and the report show them."""

import math
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from emberflow._record.json_values import json_number


@dataclass(kw_only=True)
class NodeView:
    """What the events of a record say of one node, in the newest attempt.

    Attributes:
        rank: Its global number.
        role: chief, worker, ps or evaluator.
        index: Its number within its role.
        host: Where it runs.
        state: "waiting" for its task, "starting", "ready" for rows, "running", or how it ended; "ended", where only
            the run tells.
        rows: Rows that came to it, or, once it trains, that your function took.
        rows_per_second: Their speed.
        waiting_for: The side that its rows wait for: "source", "sink" or "neither".
        memory: Bytes of main memory now.
        memory_peak: The most that were seen.
        cpus: Processor cores that it keeps busy.
        gpus: What is known of its GPUs.
        problem: Why it failed.
        before: How it failed in an attempt before this one, in one line: a restart may take less than a second.
        seconds: How long your function ran there.
        failed_in: The attempt in which it failed last.
        version: Of the last event that changed it.
    """

    rank: int
    role: str
    index: int
    host: str = ""
    state: str = "waiting"
    rows: int = 0
    rows_per_second: float = 0.0
    waiting_for: str = ""
    memory: int = 0
    memory_peak: int = 0
    cpus: float = 0.0
    gpus: tuple[dict[str, Any], ...] = ()
    problem: str = ""
    before: str = ""
    seconds: float = 0.0
    failed_in: int = 0
    version: int = 0

    def start_again(self) -> None:
        """Forget what it was doing; the peak of its memory stays, and how it failed in the attempt before."""
        if self.problem:
            self.before = f"{self.state} in attempt {self.failed_in + 1}: {last_line(self.problem)}"
        self.state, self.problem, self.waiting_for = "waiting", "", ""
        self.rows, self.memory = 0, 0
        self.rows_per_second = self.cpus = self.seconds = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return all but the version, as JSON has it."""
        known = {**vars(self), "rows_per_second": round(self.rows_per_second, 1), "cpus": round(self.cpus, 2)}
        del known["version"], known["failed_in"]
        return known


@dataclass(kw_only=True)
class NodeLog:
    """The newest lines that one node printed: version, time and text of each."""

    lines: deque[tuple[int, float, str]]
    version: int = 0

    def add(self, version: int, t: float, text: str, left_out: int) -> None:
        """Take in what it printed, after so many lines that are not in the record."""
        if left_out:
            self.lines.append((version, t, f"... {left_out} lines are not in the record"))
        self.lines.extend((version, t, line) for line in text.split("\n"))
        self.version = version

    def since(self, version: int) -> list[tuple[float, str]]:
        """Return time and text of the lines after a version, as JSON has them."""
        if self.version <= version:
            return []
        return [(round(t, 3), text) for at, t, text in self.lines if at > version]


@dataclass(kw_only=True)
class Series:
    """One metric of one node in one attempt, thinned evenly above a limit; its first and last point stay.

    Attributes:
        attempt: The attempt.
        rank: The node.
        name: The metric.
        points: Version, step, time, epoch and value of each.
        version: Of the last point.
    """

    attempt: int
    rank: int
    name: str
    points: list[tuple[int, int | None, float, float | None, float]] = field(default_factory=list)
    version: int = 0
    _stride: int = 1
    _seen: int = 0
    _is_last_kept: bool = True

    def add(self, point: tuple[int, int | None, float, float | None, float], limit: int) -> None:
        """Take in the newest point."""
        if not self._is_last_kept:
            self.points.pop()
        self._is_last_kept = self._seen % self._stride == 0
        self._seen += 1
        self.points.append(point)
        self.version = point[0]
        if self._is_last_kept and len(self.points) > limit:
            self._stride *= 2
            self._is_last_kept = len(self.points) % 2 == 1
            self.points = self.points[::2] if self._is_last_kept else [*self.points[::2], point]

    def since(self, version: int) -> dict[str, Any]:
        """Return the points after a version, as JSON has them: step, time, epoch and value."""
        first = bisect_right(self.points, version, key=lambda point: point[0])
        return {
            "attempt": self.attempt,
            "rank": self.rank,
            "name": self.name,
            "points": [
                (step, round(t, 3), finite(epoch), json_number(value))
                for _, step, t, epoch, value in self.points[first:]
            ],
        }


def last_line(text: str) -> str:
    """Return the last line, which in a traceback is the exception itself."""
    return (text.strip().splitlines() or [""])[-1]


def finite(value: float | None) -> float | None:
    """Return a number that JSON has."""
    return value if value is not None and math.isfinite(value) else None
