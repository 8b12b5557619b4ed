"""A live cluster on the driver: its attempts on a thread of their own, and its feeds while an attempt is up."""

import threading
import time
from concurrent.futures import Future
from contextlib import ExitStack
from typing import TYPE_CHECKING

from emberflow._driver.attempt import Attempt
from emberflow._driver.cluster_facts import ClusterFacts
from emberflow._driver.console import Console
from emberflow._driver.live_attempt import LiveAttempt
from emberflow._driver.live_feeding import LiveFeeding
from emberflow._driver.recording import failure_recorded
from emberflow._driver.results import result_of
from emberflow._driver.slots import slots_held
from emberflow._driver.supervisor import AttemptParts, Program, supervise
from emberflow._plan.plan import RunPlan
from emberflow._protocol.codec import Message
from emberflow._record.recorder import Recorder
from emberflow.config import RunConfig
from emberflow.errors import ClusterError, EmberflowError
from emberflow.result import Result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from emberflow.page.server import PageServer


class LiveRun:
    """Starts the nodes, and again after a loss; `feeding` is what rows go through while they are up.

    Attributes:
        plan: Of the first attempt.
        config: The options of the cluster.
        recorder: Where it records what happens.
    """

    def __init__(
        self,
        spark: "SparkSession",
        program: Program,
        plan: RunPlan,
        config: RunConfig,
        facts: ClusterFacts,
        recorder: Recorder | None = None,
    ) -> None:
        self.plan = plan
        self.config = config
        self._spark = spark
        self._program = program
        self._facts = facts
        self.recorder = recorder or Recorder()
        self._console = Console(plan.nodes, config.verbose)
        self._changed = threading.Condition()
        self._feeding: LiveFeeding | None = None
        self._attempt: LiveAttempt | None = None
        self._stop_asked: list[float | None] = []
        self._held = ExitStack()  # the slots, where tasks stay as long as nodes
        self._page: PageServer | None = None
        self._ended: Future[Result] = Future()
        self._thread = threading.Thread(target=self._run, name="emberflow-cluster", daemon=True)

    def start(self) -> None:
        """Return when all nodes are up; raise why they cannot be."""
        with self._console, ExitStack() as held:
            held.enter_context(
                slots_held(self._spark, self.plan, self._facts, self._console.status, self.recorder)
            )
            if self.plan.holds_tasks:
                self._held = held.pop_all()
            self._thread.start()
            try:
                with self._changed:
                    self._changed.wait_for(lambda: self._feeding is not None or self._ended.done())
                if self._ended.done():
                    self._ended.result()
            except BaseException:  # Ctrl-C too: nothing may be left
                self.stop_now()
                raise

    def feeding(self, but_not: LiveFeeding | None = None) -> LiveFeeding:
        """Return the feeds of the attempt that is up; wait while nodes start again; raise if the cluster is over.

        Args:
            but_not: The feeds of an attempt that has failed.
        """
        with self._changed:
            while True:
                if self._ended.done():
                    self._ended.result()
                    raise stopped_error()
                if self._feeding is not None and self._feeding is not but_not:
                    return self._feeding
                self._changed.wait()

    @property
    def is_over(self) -> bool:
        """Whether no node is left, and none will be started."""
        return self._ended.done()

    @property
    def attempt(self) -> LiveAttempt | None:
        """The last attempt."""
        return self._attempt

    def page(self, port: int) -> str:
        """Serve the page of the cluster until it is over; return its address, the same when called again."""
        from emberflow.page.server import PageServer
        from emberflow.page.sources import LiveRuns

        with self._changed:
            if self._page is None:
                if self._ended.done():
                    raise stopped_error()
                self._page = PageServer(LiveRuns(self.recorder), port)
            return self._page.url

    def stop(self, timeout: float) -> Result:
        """Let your function end on all nodes; return what it returned. The same result when called again."""
        self._ask_to_stop(timeout)
        return self._ended.result()

    def stop_now(self) -> None:
        """End all nodes at once."""
        self._ask_to_stop(None)
        self._thread.join()

    def _ask_to_stop(self, timeout: float | None) -> None:
        with self._changed:
            self._stop_asked.append(timeout)
            if self._feeding is not None:
                self._feeding.stopping()
            if self._attempt is not None:
                self._attempt.ask_to_stop(timeout)

    def _run(self) -> None:
        started = time.monotonic()
        try:
            with failure_recorded(self.recorder):
                done = supervise(
                    self._spark,
                    self._program,
                    self.plan,
                    self.config,
                    self._facts,
                    self._console,
                    self._make,
                    self.recorder,
                )
                result = result_of(done, started, self.recorder)
            self._ended.set_result(result)
        except BaseException as error:  # noqa: BLE001 - it is raised in the calls of the user
            self._ended.set_exception(error)
        finally:
            self._program.fn.close()
            self._held.close()
            with self._changed:
                if self._feeding is not None:
                    why = self._ended.exception()
                    self._feeding.fail(why if isinstance(why, EmberflowError) else stopped_error())
                self._feeding = None
                self._changed.notify_all()
            if self._page is not None:
                self._page.close()

    def _make(self, parts: AttemptParts) -> Attempt:
        attempt = LiveAttempt(parts, _Listener(self, parts))
        with self._changed:
            self._attempt = attempt
            for timeout in self._stop_asked:  # before this attempt began
                attempt.ask_to_stop(timeout)
        return attempt

    def on_up(self, parts: AttemptParts, endpoints: list[dict[str, str]]) -> LiveFeeding:
        """Let rows in."""
        hub = parts.hub
        feeding = LiveFeeding(
            self._spark, self._facts, parts.plan, parts.key, endpoints, hub.send, hub.broadcast
        )
        self._console.end_progress()
        with self._changed:
            self._feeding = feeding
            if self._stop_asked:  # while these nodes were starting
                feeding.stopping()
            self._changed.notify_all()
        return feeding

    def on_failed(self, feeding: LiveFeeding | None, error: EmberflowError) -> None:
        """Let no more rows in; calls that wait raise the error, or wait for the next attempt."""
        with self._changed:
            self._feeding = None
        if feeding is not None:
            feeding.fail(error)


class _Listener:
    """Passes on what one attempt tells: to its feeds, and to the run."""

    def __init__(self, run: LiveRun, parts: AttemptParts) -> None:
        self._run = run
        self._parts = parts
        self._feeding: LiveFeeding | None = None
        # Nodes may be faster than Spark, which has yet to say that its job has ended.
        self._early: list[tuple[int, Message]] = []
        self._returned: list[int] = []

    def on_up(self, endpoints: list[dict[str, str]]) -> None:
        self._feeding = self._run.on_up(self._parts, endpoints)
        for rank, message in self._early:
            self._feeding.on_message(rank, message)
        for rank in self._returned:
            self._feeding.node_ended(rank)

    def on_message(self, rank: int, message: Message) -> None:
        if self._feeding is None:
            self._early.append((rank, message))
        else:
            self._feeding.on_message(rank, message)

    def on_returned(self, rank: int) -> None:
        if self._feeding is None:
            self._returned.append(rank)
        else:
            self._feeding.node_ended(rank)

    def on_failed(self, error: EmberflowError) -> None:
        self._run.on_failed(self._feeding, error)


def stopped_error() -> ClusterError:
    """Return the error of a call on a cluster that is over."""
    return ClusterError(
        "The cluster must be up. Received: it was stopped, or your function has returned on every node.",
        fix="Start it again: ef.cluster(...); and let your function loop over ctx.rounds(), ctx.stream() or "
        "ctx.requests() until cluster.stop().",
    )
