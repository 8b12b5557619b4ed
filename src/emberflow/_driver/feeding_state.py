"""What the driver knows of the feeds of a live cluster: which are open, which nodes are left, why it is over."""

import logging
import threading
import time
from collections.abc import Callable, Collection

from emberflow._names import closest
from emberflow._plan import deadlines
from emberflow._plan.plan import RunPlan
from emberflow._protocol.live_messages import WARM
from emberflow.errors import ClusterError, ConfigError, EmberflowError, StartTimeoutError

log = logging.getLogger("emberflow")

ASKED = {"rounds": "ctx.rounds()", "stream": "ctx.stream({!r})", "requests": "ctx.requests({!r})"}

LOOP = "Loop over ctx.rounds(), ctx.stream() or ctx.requests(): the loop ends with cluster.stop."


class FeedingState:
    """Shared by all calls of one cluster. Threads wait here; messages of nodes wake them.

    Attributes:
        changed: Held while anything of the feeding is read or changed; notified afterwards.
    """

    def __init__(self, plan: RunPlan) -> None:
        self.changed = threading.Condition()
        self._plan = plan
        self._opened: dict[int, dict[tuple[str, str], float]] = {}
        self._last_round: dict[int, int] = {}  # of those that have left their loop
        self._ended: set[int] = set()
        self._error: EmberflowError | None = None
        self._stopped: EmberflowError | None = None

    @property
    def error(self) -> EmberflowError | None:
        """Why the cluster is over or is being stopped, or None."""
        return self._error or self._stopped

    def fail(self, error: EmberflowError) -> None:
        """Have all calls raise this error, those that wait and those to come; the first error counts."""
        with self.changed:
            self._error = self._error or error
            self.changed.notify_all()

    def stop(self, error: EmberflowError) -> None:
        """Have later calls raise this error; those that wait for nodes go on: nodes finish what they have."""
        with self.changed:
            self._stopped = self._stopped or error
            self.changed.notify_all()

    def check(self) -> None:
        """Raise why nothing more can be fed, if that is so."""
        if self.error is not None:
            raise self.error

    def on_opened(self, rank: int, kind: str, name: str) -> None:
        """Note that a node asks for a feed."""
        with self.changed:
            self._opened.setdefault(rank, {})[kind, name] = time.monotonic()
            if kind == "rounds":
                self._last_round.pop(rank, None)
            self.changed.notify_all()

    def on_closed(self, rank: int, kind: str, name: str, last: int) -> None:
        """Note that a node's function has left its loop over a feed; `last` is the last round that it took."""
        with self.changed:
            self._opened.setdefault(rank, {}).pop((kind, name), None)
            if kind == "rounds":
                self._last_round[rank] = last
            self.changed.notify_all()

    def on_ended(self, rank: int) -> None:
        """Note that a node's function has returned, or that the run continues without the node."""
        with self.changed:
            self._ended.add(rank)
            self.changed.notify_all()

    @property
    def ended(self) -> frozenset[int]:
        """The ranks whose function has returned, or that are lost."""
        return frozenset(self._ended)

    def trainers(self) -> tuple[int, ...]:
        """Return the ranks that train and have not ended."""
        return tuple(node.rank for node in self._plan.nodes if node.trains and node.rank not in self._ended)

    def check_complete(self) -> None:
        """Raise an error where all who train are needed and one has returned already."""
        lost = [node.rank for node in self._plan.nodes if node.trains and node.rank in self._ended]
        if lost and not self._plan.is_asynchronous:
            raise ClusterError(
                "Your function must run on all nodes while the cluster is fed. Received: it has returned on rank "
                f"{lost[0]}.",
                fix=LOOP,
            )

    def wait(self, is_done: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait for something that a message changes; False at the timeout; the cluster's error if it is over."""
        with self.changed:
            done = self.changed.wait_for(lambda: self._error is not None or is_done(), timeout)
            if self._error is not None:
                raise self._error
            return done

    def wait_for_round(self, done: Collection[int], of: Collection[int], number: int) -> None:
        """Wait until these ranks are done with a round, less those that end where the run can do without them."""
        self.wait(lambda: not set(of) - set(done) - self._without(number))
        lost = sorted((set(of) & self._without(number)) - set(done))
        if lost and not self._plan.is_asynchronous:
            how = "returned" if lost[0] in self._ended else "left its loop over ctx.rounds()"
            raise ClusterError(
                f"Your function must be done with round {number} first. Received: it {how} on rank {lost[0]}.",
                fix=LOOP,
            )

    def _without(self, number: int) -> set[int]:
        """Return the ranks that will not take this round."""
        return self._ended | {rank for rank, last in self._last_round.items() if last < number}

    def await_feed(self, kinds: Collection[str], name: str) -> tuple[str, tuple[int, ...]]:
        """Return the first of these kinds that nodes ask for, and the ranks that do.

        A function that has not asked for anything yet may be busy before its first feed: it is waited for.
        """
        began = time.monotonic()
        is_told = False
        with self.changed:
            while True:
                self.check()
                found = self._found(kinds, name)
                if not is_told and time.monotonic() >= began + deadlines.FEED_NOTICE:
                    is_told = True
                    self._tell_who_is_busy()
                if found is not None and (self._are_all_open() or self._is_due(found[2])):
                    return found[0], found[1]
                if found is None and self._are_all_open() and self._is_due(self._last_opened(began)):
                    raise self._unknown(kinds, name)
                since = found[2] if found else self._last_opened(began)
                is_timed = found is not None or self._are_all_open()
                left = since + deadlines.FEED_OPEN_TIMEOUT - time.monotonic()
                self.changed.wait(max(left, deadlines.SHORTEST_WAIT) if is_timed else deadlines.FEED_NOTICE)

    def _tell_who_is_busy(self) -> None:
        busy = [self._plan.nodes[rank].name for rank in self.trainers() if rank not in self._opened]
        log.warning(
            "A call waits for your function to ask for its first rows (%s) on %s.",
            ", ".join(call.format("...") for call in ASKED.values()),
            ", ".join(busy) or "no node",
        )

    def await_warm(self) -> dict[int, str]:
        """Return the names of all nodes' warm starters, by rank, once all are ready."""
        ranks = {node.rank for node in self._plan.nodes}
        with self.changed:
            self.changed.wait_for(
                lambda: self.error is not None or ranks <= set(self._starters()), self._plan.start_timeout
            )
            self.check()
            if late := sorted(ranks - set(self._starters())):
                names = ", ".join(self._plan.nodes[rank].name for rank in late)
                raise StartTimeoutError(
                    f"All idle nodes must have imported TensorFlow within {self._plan.start_timeout:g} s of the "
                    f"first run on them. Received: {names} have not.",
                    fix="See what these executors' hosts are busy with, or start the cluster with a longer "
                    "start_timeout.",
                )
            return self._starters()

    def _starters(self) -> dict[int, str]:
        return {rank: name for rank, feeds in self._opened.items() for kind, name in feeds if kind == WARM}

    def _found(self, kinds: Collection[str], name: str) -> tuple[str, tuple[int, ...], float] | None:
        for kind in kinds:
            wanted = (kind, "" if kind == "rounds" else name)
            times = {rank: feeds[wanted] for rank, feeds in self._opened.items() if wanted in feeds}
            ranks = tuple(sorted(set(times) - self._ended))
            if ranks:
                return kind, ranks, min(times.values())
        return None

    def _are_all_open(self) -> bool:
        trainers = self.trainers()
        if not trainers:
            raise ClusterError(
                "Your function must run while the cluster is fed. Received: it has returned on all nodes.",
                fix=LOOP,
            )
        return all(rank in self._opened for rank in trainers)

    def _last_opened(self, began: float) -> float:
        return max([began, *(at for feeds in self._opened.values() for at in feeds.values())])

    def _is_due(self, since: float) -> bool:
        return time.monotonic() >= since + deadlines.FEED_OPEN_TIMEOUT

    def _unknown(self, kinds: Collection[str], name: str) -> ConfigError:
        there = {feed for feeds in self._opened.values() for feed in feeds}
        same = [known for kind, known in there if kind in kinds]
        wanted = " or ".join(ASKED[kind].format(name) for kind in kinds)
        meant = closest(name, same)
        return ConfigError(
            f"Your function must ask for what it is fed: {wanted}. Received: name={name!r}; it asks for "
            f"{', '.join(sorted(ASKED[kind].format(known) for kind, known in there)) or 'nothing'}.",
            fix=f"Did you mean name={meant!r}?" if meant else f"Call {wanted} in your function.",
        )
