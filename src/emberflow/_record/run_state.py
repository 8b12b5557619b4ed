"""The state of a run: its events, folded. The page, the report and `emberflow runs` show nothing else.

Pure: what is shown of a record is what its events say. Every event raises the version; `changes` tells what is new
since a version, so that one function serves a first look, a live update and a file.
"""

import functools
from collections import deque
from collections.abc import Iterable
from typing import Any

from emberflow._record.events import (
    AttemptFailed,
    AttemptStarted,
    ClusterFormed,
    Event,
    LinesPrinted,
    MetricsReported,
    NodeEnded,
    NodeJoined,
    NodeReady,
    NodeUsed,
    RowsFed,
    RunEnded,
    RunFailure,
    RunPlanned,
    RunStarted,
    RunWaits,
    SlotsHeld,
)
from emberflow._record.json_values import json_number
from emberflow._record.metric_values import best_values
from emberflow._record.node_view import NodeLog, NodeView, Series, finite, last_line
from emberflow._record.run_start import RunStart
from emberflow._record.shown_facts import shown_options, shown_plan

POINTS = 4000  # of one series; a screen has fewer columns
TOTAL_POINTS = 200_000  # of all series
LINES = 1000  # of one node's output
TOTAL_LINES = 20_000
MARKS = 200  # more would hide the curves
FAILED = ("raised", "lost", "refused", "undelivered")


class RunState:
    """What is known of a run after the events that it was given.

    Attributes:
        version: How many events there were.
        t: The time of the last, in seconds since the run began.
        started: Its first event, once it is there.
        status: "starting", "running", "succeeded" or "failed".
        attempt: The newest attempt.
        nodes: By rank.
        series: By attempt, rank and name.
        start: When each attempt reached which phase, and what the run waits for.
        marks: Restarts and losses: time, attempt, kind, text, rank.
        failure: The error that the caller got.
        value: The beginning of what the chief returned.
        progress: The share of the training that is done, where that is known.
    """

    def __init__(self) -> None:
        self.version = 0
        self.t = 0.0
        self.started: RunStarted | None = None
        self.plan: dict[str, Any] = {}
        self.status = "starting"
        self.attempt = 0
        self.nodes: dict[int, NodeView] = {}
        self.series: dict[tuple[int, int, str], Series] = {}
        self.logs: dict[int, NodeLog] = {}
        self.start = RunStart()
        self.marks: list[dict[str, Any]] = []
        self.failure: RunFailure | None = None
        self.value = ""
        self.progress: float | None = None
        self._head = 0

    @functools.singledispatchmethod
    def _on(self, event: Event) -> None:
        """Nothing is shown of other events but their time."""

    def apply(self, event: Event) -> None:
        """Take in the next event."""
        self.version += 1
        self.t = max(self.t, event.t)
        self._on(event)

    @_on.register
    def _(self, event: RunStarted) -> None:
        self.started = event
        self.start.is_shared = not self.is_parallel
        self._head = self.version

    @_on.register
    def _(self, event: RunPlanned) -> None:
        self.plan = event.plan
        self.nodes = {
            each.rank: NodeView(rank=each.rank, role=each.role, index=each.index, version=self.version)
            for each in event.nodes
        }
        self._reach("planned", event.t)

    @_on.register
    def _(self, event: RunWaits) -> None:
        self.start.waiting = event.why
        self._head = self.version

    @_on.register
    def _(self, event: SlotsHeld) -> None:
        self._reach("slots", event.t)

    @_on.register
    def _(self, event: AttemptStarted) -> None:
        self.attempt = event.attempt
        self.status = "starting"
        self.start.begin(event.attempt, self.nodes)
        for node in self.nodes.values():
            if node.state not in FAILED:  # those are shown as failed until their new task has joined
                node.start_again()
                node.version = self.version
        self._head = self.version

    @_on.register
    def _(self, event: NodeJoined) -> None:
        node = self._node(event.rank)
        if node.state in FAILED:
            node.start_again()
        node.host, node.state = event.host, "starting"
        self.start.join(event.rank, event.t)
        self._head = self.version

    @_on.register
    def _(self, event: NodeReady) -> None:
        if self.is_parallel:
            self._node(event.rank).state = self.status = "running"
            self._head = self.version
            return
        self._node(event.rank).state = "ready"
        self.start.be_ready(event.rank, event.t)
        self._head = self.version

    @_on.register
    def _(self, event: ClusterFormed) -> None:
        self._run(event.t)

    def _run(self, t: float) -> None:
        for node in self.nodes.values():
            if node.state in ("starting", "ready"):
                node.state, node.version = "running", self.version
        self.status = "running"
        self._reach("rows", t)

    @_on.register
    def _(self, event: RowsFed) -> None:
        node = self._node(event.rank)
        node.rows, node.rows_per_second = event.rows, event.rows_per_second
        node.waiting_for = event.waiting_for

    @_on.register
    def _(self, event: NodeUsed) -> None:
        node = self._node(event.rank)
        node.memory, node.cpus, node.gpus = event.memory, event.cpus, event.gpus
        node.memory_peak = max(node.memory_peak, event.memory)

    @_on.register
    def _(self, event: MetricsReported) -> None:
        if not self.start.has_reached("first step"):
            if self.status == "starting":  # where nodes meet without the driver it is not told
                self._run(event.t)
            self._reach("first step", event.t)
        epoch = event.values.get("epoch")
        limit = max(min(POINTS, TOTAL_POINTS // (len(self.series) + 1)), 20)
        for name, value in event.values.items():
            if name in ("epoch", "progress"):
                continue
            key = (self.attempt, event.rank, name)
            series = self.series.get(key)
            if series is None:
                series = self.series[key] = Series(attempt=self.attempt, rank=event.rank, name=name)
            series.add((self.version, event.step, event.t, epoch, value), limit)
        if event.rank == 0 and "progress" in event.values:
            self.progress = event.values["progress"]
            self._head = self.version
        elif self.is_parallel:  # any task may have the best value now
            self._head = self.version

    @_on.register
    def _(self, event: LinesPrinted) -> None:
        log = self.logs.get(event.rank)
        if log is None:
            room = max(min(LINES, TOTAL_LINES // max(len(self.nodes), 1)), 20)
            log = self.logs[event.rank] = NodeLog(lines=deque(maxlen=room))
        log.add(self.version, event.t, event.text, event.left_out)

    @_on.register
    def _(self, event: NodeEnded) -> None:
        node = self._node(event.rank)
        is_first_failure = event.ending in FAILED and node.state not in FAILED
        node.state, node.problem, node.seconds = event.ending, event.problem, event.seconds
        node.host = node.host or event.host
        if is_first_failure:
            node.failed_in = self.attempt
            text = f"{node.role} {node.rank} {event.ending}: {last_line(event.problem)}"
            self._mark(event.t, "loss", text, event.rank)

    @_on.register
    def _(self, event: AttemptFailed) -> None:
        if event.is_restarted:
            self._mark(event.t, "restart", event.problem, event.rank)

    @_on.register
    def _(self, event: RunEnded) -> None:
        self.status = "failed" if event.failure else "succeeded"
        self.start.waiting = None
        self.failure, self.value = event.failure, event.value
        for node in self.nodes.values():
            if node.state not in FAILED and node.state != "returned":
                node.state, node.version = "ended", self.version
        self._head = self.version

    @property
    def run_id(self) -> str:
        """What the run is called; "" before its first event."""
        return self.started.run_id if self.started else ""

    @property
    def is_over(self) -> bool:
        """Whether the call has returned or raised."""
        return self.status in ("succeeded", "failed")

    @property
    def is_parallel(self) -> bool:
        """Whether its nodes are independent tasks, which wait neither for rows nor for each other."""
        return self.started is not None and self.started.kind == "parallel"

    def head(self) -> dict[str, Any]:
        """Return what is known of the run as a whole, as JSON has it."""
        started = self.started
        best = best_values(self.series.values()) if self.is_parallel else []
        return {
            "best": [each._asdict() | {"value": json_number(each.value)} for each in best],
            "id": self.run_id,
            "kind": started.kind if started else "run",
            "name": started.name if started else "",
            "at": started.at if started else 0.0,
            "options": shown_options(started.options) if started else {},
            "versions": started.versions if started else {},
            "plan": shown_plan(self.plan),
            "status": self.status,
            "attempt": self.attempt,
            "progress": finite(self.progress),
            "phases": self.start.phases,
            "waiting": self.start.waiting,
            "marks": self.marks,
            "failure": vars(self.failure) if self.failure else None,
            "value": self.value,
        }

    def changes(self, since: int = 0) -> dict[str, Any]:
        """Return what is new after a version, as JSON has it; all of it after version 0."""
        found: dict[str, Any] = {
            "run": self.run_id,
            "version": self.version,
            "t": round(self.t, 3),
            "nodes": [node.as_dict() for node in self.nodes.values() if node.version > since],
            "series": [each.since(since) for each in self.series.values() if each.version > since],
            "logs": [(rank, *line) for rank, log in self.logs.items() for line in log.since(since)],
        }
        if self._head > since:
            found["head"] = self.head()
        return found

    def _node(self, rank: int) -> NodeView:
        """Return a node that an event has changed."""
        node = self.nodes.get(rank)
        if node is None:  # the record was cut at its beginning
            node = self.nodes[rank] = NodeView(rank=rank, role="worker", index=rank)
        node.version = self.version
        return node

    def _reach(self, phase: str, t: float) -> None:
        self.start.reach(phase, t)
        self._head = self.version

    def _mark(self, t: float, kind: str, text: str, rank: int) -> None:
        mark = {"t": round(t, 3), "attempt": self.attempt, "kind": kind, "text": text[:500], "rank": rank}
        if len(self.marks) < MARKS:
            self.marks.append(mark)
        self._head = self.version


def fold(events: Iterable[Event]) -> RunState:
    """Return the state after all of these events."""
    state = RunState()
    for event in events:
        state.apply(event)
    return state
