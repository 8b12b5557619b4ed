"""One node's runner, seen from its task: started, brought together with the others, followed to its end."""

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import cloudpickle

from emberflow._feed.source_errors import is_transient
from emberflow._node.node_spec import JOB_FILE, VALUE_FILE, NodeSpec
from emberflow._plan import deadlines
from emberflow._plan.plan import RunPlan
from emberflow._protocol.frames import Message
from emberflow._protocol.outcome import Outcome, describe_exit, describe_stop
from emberflow._task.events import is_end, next_event
from emberflow._task.exchange import DONE, BarrierExchange, DriverExchange, Exchange
from emberflow._task.gpus import GpuMonitor
from emberflow._task.node_monitor import NodeMonitor
from emberflow._task.node_process import NodeProcess, running_node
from emberflow._task.node_state import STARTING, TAKING_ROWS, WAITING_FOR_ROWS, WORKING
from emberflow._task.row_writer import RowsEndedError, RowWriter
from emberflow._task.startup_exchange import MEET, brought_by
from emberflow._task.stream_windows import Windows
from emberflow._task.value_client import OTHERS_SMALL, ValueClient
from emberflow.errors import DataError, EmberflowError

if TYPE_CHECKING:
    import socket

    from pyspark import BarrierTaskContext


class NodeRunner:
    """A node from its start to the end of its last descendant."""

    def __init__(
        self, order: NodeSpec, pouring: RowWriter | None = None, delivery: ValueClient | None = None
    ) -> None:
        self._order = order
        self._pouring = pouring
        self._windows = Windows(order.plan)
        self._doing = STARTING
        self._delivery = delivery
        self._plan = order.plan
        self._me = order.me
        self._folder = Path(order.folder)
        self._endpoints: dict[str, str] = {}
        self._ending: Message = {}
        self._is_serving = False
        self._has_driver = False
        self._is_told = False
        self._monitor: GpuMonitor | None = None
        self.value: IO[bytes] | None = None

    def run(
        self, environment: dict[str, str], driver: "socket.socket | None", context: "BarrierTaskContext"
    ) -> Outcome:
        """Start the node, bring it together with the others, wait for its end; nothing is left then."""
        self._has_driver = driver is not None
        held = () if driver is None else (driver.fileno(),)
        with (
            running_node(self._folder, environment, held) as child,
            _watching(child, driver, self._plan) as watch,
            self._monitored(),
            closing(self._gathering(watch, context)) as gathering,
        ):
            watch.describe = self._describe
            watch.on_end = lambda event: self._tell_early(event, watch)
            watch.tell_node(self._give_order())
            outcome = (
                self._start(watch)
                or self._take_rows(watch)
                or self._meet(watch, gathering, child)
                or self._work(watch, gathering)
            )
            if not self._is_told:
                watch.tell_driver({"outcome": outcome.to_json()})
            return outcome

    def _gathering(self, watch: NodeMonitor, context: "BarrierTaskContext") -> Exchange:
        return (
            DriverExchange(watch)
            if self._plan.meeting == "driver"
            else BarrierExchange(watch, context, self._me.rank)
        )

    def outcome(self, ending: str, watch: NodeMonitor | None = None, **known: object) -> Outcome:
        """Return how this node ended."""
        return Outcome(
            rank=self._me.rank,
            role=self._me.role,
            index=self._me.index,
            host=self._order.host,
            ending=ending,  # type: ignore[arg-type]
            devices=self._order.devices,
            gpus=tuple(self._monitor.seen()) if self._monitor else (),
            log_tail=watch.tail() if watch else "",
            feed=self._fed(),
            metrics=tuple(watch.metrics.items()) if watch else (),
            **known,  # type: ignore[arg-type]
        )

    def _fed(self) -> dict[str, Any]:
        if self._pouring is None:
            return {}
        return {**self._pouring.progress.as_dict(), "datasets": self._ending.get("datasets", {})}

    def refusal(self, error: EmberflowError, watch: NodeMonitor | None = None) -> Outcome:
        """Return the outcome of a node that cannot run, with the error's own words and kind."""
        return self.outcome(
            "refused",
            watch,
            problem=error.problem,
            fix=error.fix,
            exception_type=type(error).__name__,
            is_transient=is_transient(error),
        )

    def _start(self, watch: NodeMonitor) -> Outcome | None:
        """Wait until the process is up and has loaded your function."""
        event = next_event(watch, self._plan.start_timeout)
        if event is None:
            return self.outcome(
                "lost",
                watch,
                problem=f"its process did not get ready within {self._plan.start_timeout:g} s",
                fix="See what the modules of your function do on import, or raise start_timeout.",
            )
        if "ready" not in event:
            return self._ended_badly(watch, event)
        watch.tell_driver({"ready": True})
        self._endpoints = event["ready"]
        self._doing = TAKING_ROWS
        return None

    def _describe(self) -> str:
        """Return what is going on here, for the driver that asks why others wait for this node."""
        if self._doing == WORKING and self._pouring is not None and self._pouring.waits_for_source:
            return WAITING_FOR_ROWS
        return self._doing

    def _tell_early(self, event: Message, watch: NodeMonitor) -> None:
        """Tell the driver at once that the node has ended: the task's own thread may wait for a slow source."""
        if self._doing == TAKING_ROWS and not self._is_told:
            self._is_told = True
            watch.tell_driver({"outcome": self._lost(watch, event).to_json()})

    def _take_rows(self, watch: NodeMonitor) -> Outcome | None:
        """Bring this rank's rows to local disk, or to the mouth of the stream."""
        if self._pouring is None:
            return None
        try:
            self._pouring.prepare(watch.tell_driver, watch.is_over.is_set)
        except EmberflowError as error:
            return self._without_rows(error, watch)
        return self._ended_badly(watch, next_event(watch)) if watch.is_over.is_set() else None

    def _without_rows(self, error: EmberflowError, watch: NodeMonitor) -> Outcome:
        """Return the outcome of a node whose rows do not come: a loss where Spark failed, else what was raised."""
        if isinstance(error, RowsEndedError):
            return self.outcome("lost", watch, problem=error.problem, fix=error.fix)
        return self.refusal(error, watch)

    def _meet(self, watch: NodeMonitor, gathering: Exchange, child: NodeProcess) -> Outcome | None:
        """Exchange addresses and the sizes of shards with all ranks, and let your function begin."""
        self._doing = WORKING
        gathering.start(MEET, brought_by(self._endpoints, self._pouring.facts() if self._pouring else {}))
        event = next_event(watch)
        if event.get("gathered") != MEET:
            return self._ended_badly(watch, event)
        told = event["values"]
        if "problem" in told:
            return self.refusal(DataError(told["problem"], fix=told["fix"]), watch)
        watch.tell_node(told)
        if self._pouring is not None:
            try:
                self._pouring.hand_over(child.feed, lambda error: watch.queue.put({"feed_error": error}))
            except OSError:  # the node has just ended: the keeper says how
                return self._ended_badly(watch, next_event(watch, deadlines.LEAVE_TIMEOUT) or {})
        return None

    def _work(self, watch: NodeMonitor, gathering: Exchange) -> Outcome:
        """Wait until all who train are done; then this node may go, whether it returned or serves."""
        if not self._me.trains:
            gathering.start(DONE, None)
        while True:
            event = self._windows.next_event(watch)
            if event.get("gathered") == DONE:
                watch.tell_node({"leave": True})
                return self._leave(watch)
            if self._is_answered(event, watch, gathering):
                continue
            if event.get("ended") == "returned":
                self._returned(event)
            elif "serving" in event:
                self._is_serving = True
            else:
                outcome = self._ended_badly(watch, event)
                return self._outlived(watch, gathering, outcome) if self._is_bearable(outcome) else outcome
            if self._me.trains:
                gathering.start(DONE, None)

    def _is_bearable(self, outcome: Outcome) -> bool:
        # Who counts the losses is the driver: where it cannot be dialled, one is the end.
        return self._has_driver and outcome.ending == "lost" and self._plan.can_lose([self._me.rank])

    def _outlived(self, watch: NodeMonitor, gathering: Exchange, lost: Outcome) -> Outcome:
        """Stay for the others, who go on: if this task failed, Spark would end the whole stage."""
        outcome = dataclasses.replace(lost, goes_on=True)
        watch.tell_driver({"outcome": outcome.to_json()})
        if not self._ending and not self._is_serving:  # else it has said so already
            gathering.start(DONE, None)
        while next_event(watch).get("gathered") != DONE:
            pass
        return outcome

    def _is_answered(self, event: Message, watch: NodeMonitor, gathering: Exchange) -> bool:
        """Pass on what nodes tell and ask each other while they train."""
        if "tensorboard" in event:
            watch.tell_driver(event)
        elif "lost" in event:
            watch.tell_node(event)
        elif "feed_error" in event and self._ending:
            pass  # of rows that your function did not want: it has returned
        else:
            return self._windows.is_answered(event, watch, gathering)
        return True

    def _returned(self, event: Message) -> None:
        """Note how it ended, and hold its value: the folder goes with the process, an open file stays."""
        self._ending = event
        if self._me.rank == 0 or event["value_bytes"] <= OTHERS_SMALL:
            self.value = (self._folder / VALUE_FILE).open("rb")

    def _leave(self, watch: NodeMonitor) -> Outcome:
        """Let the process end by itself, so that its exit handlers run; the keeper ends it if it does not."""
        timeout = self._patience()
        while (event := next_event(watch, timeout)) and not is_end(event):
            if "tensorboard" in event:
                watch.tell_driver(event)
            elif event.get("ended") == "returned":
                self._returned(event)
                timeout = deadlines.LEAVE_TIMEOUT
            elif "ended" in event:
                return self._ended_badly(watch, event)
        if event is None and self._is_evaluating():
            told = f"not done {timeout:g} s (evaluator_timeout) after the others: ended without a last evaluation"
            watch.tell_driver({"log": told})
        watch.drain_log(deadlines.LOG_DRAIN_TIMEOUT)
        return self._delivered(watch)

    def _delivered(self, watch: NodeMonitor) -> Outcome:
        """Bring a large value to the driver: the others are done, and the node is gone."""
        ending, way = "returned", dict[str, str]()
        if self._delivery is not None and self.value is not None:
            ending, way = self._delivery.deliver(self.value, self._ending["value_bytes"])
        return self.outcome(ending, watch, **_known(self._ending), **way)

    def _patience(self) -> float:
        if self._ending or self._is_serving:
            return deadlines.LEAVE_TIMEOUT
        return self._plan.evaluator_timeout if self._is_evaluating() else deadlines.SERVING_TIMEOUT

    def _is_evaluating(self) -> bool:
        return self._me.role == "evaluator" and not self._ending and not self._is_serving

    def _ended_badly(self, watch: NodeMonitor, event: Message) -> Outcome:
        """Your function raised, the node could not begin or ended too early, or no more rows come for it."""
        if "feed_error" in event:
            return self._without_rows(event["feed_error"], watch)
        if "ended" in event:
            watch.drain_log(deadlines.LAST_LINES_TIMEOUT)
            ending = "refused" if event["ended"] == "refused" else "raised"
            return self.outcome(ending, watch, **_known(event))
        watch.drain_log(deadlines.LOG_DRAIN_TIMEOUT)
        return self._lost(watch, event)

    def _lost(self, watch: NodeMonitor, event: Message) -> Outcome:
        problem, fix = (
            describe_stop(event["stopped"]) if "stopped" in event else describe_exit(event.get("exit"))
        )
        return self.outcome("lost", watch, problem=problem, fix=fix)

    def _give_order(self) -> Message:
        (self._folder / JOB_FILE).write_bytes(cloudpickle.dumps(self._order))
        return {"folder": str(self._folder), "sys_path": sys.path}

    @contextmanager
    def _monitored(self) -> Iterator[None]:
        self._monitor = GpuMonitor(self._order.devices)
        try:
            yield
        finally:
            self._monitor.stop()


@contextmanager
def _watching(child: NodeProcess, driver: "socket.socket | None", plan: RunPlan) -> Iterator[NodeMonitor]:
    watch = NodeMonitor(child, driver, plan.forward_logs, plan.exchange_timeout)
    try:
        yield watch
    finally:
        watch.close()


def _known(event: Message) -> dict[str, object]:
    names = ("problem", "fix", "exception_type", "seconds", "value_bytes")
    return {name: event[name] for name in names if name in event}
