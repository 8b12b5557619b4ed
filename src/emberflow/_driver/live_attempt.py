"""One attempt of a live cluster: its Spark job ends when all nodes are up, and the attempt when the last node has."""

import logging
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

from emberflow._driver.attempt import Attempt
from emberflow._driver.events import Formed, JobRows, NodeSent, StopAsked
from emberflow._driver.held_tasks import HeldTasks
from emberflow._driver.supervisor import AttemptParts
from emberflow._plan import deadlines
from emberflow._protocol.codec import Message
from emberflow._protocol.driver_messages import FunctionReturned, LogLines
from emberflow._protocol.live_messages import TO_DRIVER, FeedCounts
from emberflow._record.events import RowsFed
from emberflow.errors import ClusterError, EmberflowError

log = logging.getLogger("emberflow")

KEPT_LINES = 20  # of each node's output, for `status`


class LiveListener(Protocol):
    """Is told of an attempt, on the attempt's thread; must not block."""

    def on_up(self, endpoints: list[dict[str, str]]) -> None:
        """All nodes are up; the slots of their tasks are free, unless the plan holds them."""

    def on_message(self, rank: int, message: Message) -> None:
        """A node has sent a message about its feeds."""

    def on_returned(self, rank: int) -> None:
        """Your function has returned on a node, or the cluster goes on without the node."""

    def on_failed(self, error: EmberflowError) -> None:
        """The attempt is about to end because of this error."""


@dataclass(frozen=True, kw_only=True)
class NodeSnapshot:
    """What is known of a node at one moment.

    Attributes:
        host: Where it runs; "" before its task has connected.
        state: "waiting" for its task, "starting", "up", "returned", or how it ended.
        log_tail: The last lines that it printed.
        rows_taken: Rows that your function has taken there.
        rows_waiting: Rows that are there for it to take.
        rows_per_second: How many it has taken per second lately.
        tasks_held: Feeding tasks that wait until it takes rows.
        address: Host and port that it holds for TensorFlow's server; "" before all nodes know each other.
    """

    host: str
    state: str
    log_tail: tuple[str, ...]
    rows_taken: int
    rows_waiting: int
    rows_per_second: float
    tasks_held: int
    address: str


class RowRate:
    """What a node has told of its rows lately.

    >>> rate = RowRate()
    >>> rate.add(FeedCounts(100, 0), now=1.0)
    >>> rate.add(FeedCounts(300, 50), now=5.0)
    >>> rate.last, rate.per_second(now=5.0), rate.per_second(now=60.0)
    (FeedCounts(taken=300, waiting=50, held=0), 50.0, 0.0)
    """

    def __init__(self) -> None:
        self.last = FeedCounts(0, 0)
        self._told: deque[tuple[float, int]] = deque()

    def add(self, counts: FeedCounts, now: float) -> None:
        """Note what a node has just told."""
        self.last = counts
        self._told.append((now, counts.taken))
        while self._told[0][0] < now - deadlines.FEED_RATE_WINDOW:
            self._told.popleft()

    def per_second(self, now: float) -> float:
        """Return how many rows per second were taken since the first news that is not old."""
        told = [each for each in tuple(self._told) if each[0] >= now - deadlines.FEED_RATE_WINDOW]
        if not told or now <= told[0][0]:
            return 0.0
        return (told[-1][1] - told[0][1]) / (now - told[0][0])


class LiveAttempt(Attempt):
    """Supervises nodes that outlive their stage."""

    def __init__(self, parts: AttemptParts, listener: LiveListener) -> None:
        super().__init__(
            parts.plan, parts.hub, parts.job, parts.console, parts.metrics, parts.on_quit, parts.recorder
        )
        self._listener = listener
        self._endpoints: list[dict[str, str]] | None = None
        self._is_up = False
        self._stop_by: float | None = None
        self._stop_timeout = 0.0
        self._is_abandoned = False
        self._returned: set[int] = set()
        self._log_tails: list[deque[str]] = [deque(maxlen=KEPT_LINES) for _ in parts.plan.nodes]
        self._rates = [RowRate() for _ in parts.plan.nodes]
        self._held = HeldTasks()
        self._on_event |= {StopAsked: self._on_stop_asked}

    def run(self) -> list[Any]:
        """Return the nodes' outcomes, or raise what went wrong; whoever waits for the nodes is told before."""
        try:
            return super().run()
        except EmberflowError as error:
            # Told early where nodes are left to be ended; where none is, only here. Calls would wait for ever.
            self._listener.on_failed(error)
            raise

    def ask_to_stop(self, timeout: float | None) -> None:
        """Have all nodes end, from any thread: within `timeout` seconds, or, with None, at once.

        That their feeds end is told by `LiveFeeding.stopping`.
        """
        self._hub.events.put(StopAsked(timeout))

    def nodes(self) -> tuple[NodeSnapshot, ...]:
        """Return what is known of each node, from any thread."""
        now = time.monotonic()
        return tuple(
            NodeSnapshot(
                host=self._hosts.get(node.rank, ""),
                state=self._state_of(node.rank),
                log_tail=tuple(self._log_tails[node.rank]),
                rows_taken=self._rates[node.rank].last.taken,
                rows_waiting=self._rates[node.rank].last.waiting,
                rows_per_second=self._rates[node.rank].per_second(now),
                tasks_held=self._rates[node.rank].last.held,
                address=self._endpoints[node.rank]["tf"] if self._endpoints else "",
            )
            for node in self._plan.nodes
        )

    def _on_tolerated(self, rank: int) -> None:
        super()._on_tolerated(rank)
        self._listener.on_returned(rank)  # else calls would wait for it for ever

    def _state_of(self, rank: int) -> str:
        if outcome := self._failures.outcomes().get(rank):
            return str(outcome.ending)
        if rank in self._returned:
            return "returned"
        if rank in self._hosts:
            return "up" if rank in self._ready else "starting"
        return "waiting"

    def _on_formed(self, event: Formed) -> None:
        super()._on_formed(event)
        self._endpoints = event.endpoints
        self._tell_if_up()

    def _on_job_rows(self, event: JobRows) -> None:
        super()._on_job_rows(event)
        self._tell_if_up()

    def _tell_if_up(self) -> None:
        is_job_over = self._rows is not None and len(self._rows) == len(self._plan.nodes)
        if (is_job_over or self._plan.holds_tasks) and self._endpoints is not None and not self._is_up:
            self._is_up = True
            self._listener.on_up(self._endpoints)

    def _on_node_sent(self, event: NodeSent) -> None:
        match event.message:
            case LogLines(text):
                self._log_tails[event.rank].extend(text.split("\n"))
                super()._on_node_sent(event)
            case FunctionReturned():
                self._returned.add(event.rank)
                self._listener.on_returned(event.rank)
            case FeedCounts() as counts:
                self._on_counts(event.rank, counts, time.monotonic())
            case message if isinstance(message, TO_DRIVER):
                self._listener.on_message(event.rank, message)
            case _:
                super()._on_node_sent(event)

    def _on_counts(self, rank: int, counts: FeedCounts, now: float) -> None:
        rate = self._rates[rank]
        rate.add(counts, now)
        self._held.note(rank, counts, now)
        side = "sink" if counts.waiting else "source"
        speed = rate.per_second(now)
        self._recorder.emit(
            RowsFed, rank=rank, rows=counts.taken, rows_per_second=speed, waiting_for=side, is_training=True
        )

    def _on_stop_asked(self, event: StopAsked) -> None:
        if event.timeout is None:
            self._is_abandoned = True
            return
        self._stop_timeout = event.timeout
        self._stop_by = time.monotonic() + event.timeout

    def _limits(self) -> tuple[float | None, ...]:
        return (*super()._limits(), self._stop_by, self._held.due())

    def _check_waits(self) -> None:
        super()._check_waits()
        for rank, held in self._held.late(time.monotonic()):
            log.warning(
                "Feeding tasks that wait for %s on %s: %d. It holds as many rows as it may, and your function has "
                "taken none for %g s.",
                self._plan.nodes[rank].name,
                self._hosts[rank],
                held,
                deadlines.FEED_NOTICE,
            )
        if self._stop_by is not None and time.monotonic() >= self._stop_by:
            self._stop_by = None
            raise self._stop_timed_out()

    def _stop_timed_out(self) -> ClusterError:
        names = [node.name for node in self._plan.nodes if self._state_of(node.rank) == "up" and node.trains]
        return ClusterError(
            f"Your function must return within {self._stop_timeout:g} s of cluster.stop(). Received: it still runs "
            f"on {', '.join(names) or 'no worker, but a node has not ended'}; all nodes were ended.",
            fix="Let it return when ctx.rounds(), ctx.stream() or ctx.requests() end, or pass a longer timeout.",
        )

    def _is_complete(self) -> bool:
        return self._rows is not None and len(self._failures.outcomes()) == len(self._plan.nodes)

    def _is_over(self) -> bool:
        return self._is_abandoned or super()._is_over()

    def _on_ending(self) -> None:
        self._stop_by = None
        if error := self._error():
            self._listener.on_failed(error)

    def _result(self) -> list[Any]:
        """Return the nodes' outcomes in the form of a Spark job's rows; none where the cluster was abandoned."""
        if self._is_abandoned:
            return []
        if not self._is_complete():
            return super()._result()
        outcomes = self._failures.outcomes()
        return [
            {"rank": rank, "part": 0, "outcome": outcomes[rank].to_json(), "value": b""}
            for rank in sorted(outcomes)
        ]

    def _was_interrupted(self) -> bool:
        """A job that has ended cannot be cancelled any more."""
        is_job_over = self._is_up and not self._plan.holds_tasks
        return not is_job_over and super()._was_interrupted()
