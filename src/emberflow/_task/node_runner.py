"""One node's life seen from its task: started, brought together with the others, followed to its end."""

import dataclasses
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from emberflow._node.node_spec import VALUE_FILE, NodeSpec, send_spec
from emberflow._plan import deadlines
from emberflow._plan.plan import RunPlan
from emberflow._protocol.codec import Message
from emberflow._protocol.driver_messages import (
    Cluster,
    FunctionReturned,
    Gathered,
    LogLines,
    NoCluster,
    NodeReady,
    WorkerLost,
)
from emberflow._protocol.live_messages import TO_DRIVER, TO_NODE
from emberflow._protocol.node_messages import (
    Leave,
    Raised,
    Ready,
    Returned,
    Serving,
    StartNode,
    TensorBoardStarted,
)
from emberflow._protocol.node_state import NodeState
from emberflow._protocol.outcome import Ending, Outcome
from emberflow._protocol.sealed_file import LocalFile
from emberflow._task.events import FeedFailed, KeeperGone, TaskEvent, is_exit
from emberflow._task.exchange import DONE, AllGather, BarrierExchange, DriverExchange, Exchange
from emberflow._task.gpus import GpuMonitor
from emberflow._task.node_monitor import NodeMonitor
from emberflow._task.node_outcomes import NodeOutcomes
from emberflow._task.node_process import NodeProcess, running_node
from emberflow._task.report_sender import ReportSender
from emberflow._task.row_writer import RowWriter
from emberflow._task.startup_exchange import startup_facts
from emberflow._task.stream_windows import WindowSteps
from emberflow._task.usage import usage_reported
from emberflow._task.value_client import OTHERS_SMALL, ValueClient
from emberflow._task.warm_start import WarmAccess
from emberflow.errors import DataError, EmberflowError

if TYPE_CHECKING:
    import socket


class NodeRunner:
    """A node from its start to the end of its last descendant.

    Args:
        spec: What the node receives.
        row_writer: Brings its rows, if it has any.
        values: Brings a large value to the driver.
        on_joined: Called once all nodes have met, when your function may begin.
        reports: Gets what the node reports, where no driver decides anything.

    Attributes:
        value: The file with what your function returned, once it has.
    """

    def __init__(
        self,
        spec: NodeSpec,
        row_writer: RowWriter | None = None,
        values: ValueClient | None = None,
        on_joined: Callable[[], None] = lambda: None,
        reports: ReportSender | None = None,
    ) -> None:
        self.value: IO[bytes] | None = None
        self._spec = spec
        self._row_writer = row_writer
        self._values = values
        self._on_joined = on_joined
        self._reports = reports
        self._window_steps = WindowSteps(spec.plan)
        self._state = NodeState.STARTING
        self._plan = spec.plan
        self._me = spec.me
        self._folder = Path(spec.folder)
        self._endpoints: dict[str, str] = {}
        self._outcomes = NodeOutcomes(spec, row_writer)
        self._is_serving = False
        self._has_driver = False
        self._is_outcome_sent = False

    def run(
        self,
        environment: dict[str, str],
        driver: "socket.socket | None",
        watched: tuple[int, ...] = (),
        all_gather: AllGather | None = None,
        warm: WarmAccess | None = None,
    ) -> Outcome:
        """Start the node, bring it together with the others, wait for its end; nothing of it is left then.

        Args:
            environment: The node's environment variables.
            driver: The connection to the driver, if it can be reached.
            watched: Descriptors of processes that the node must not outlive.
            all_gather: Spark's exchange among tasks, for where the driver cannot be reached.
            warm: Processes from which the node may be forked.
        """
        self._has_driver = driver is not None
        held = () if driver is None else (driver.fileno(),)
        with (
            running_node(self._folder, environment, held, watched, warm) as child,
            _monitored(child, driver, self._plan, self._reports) as monitor,
            self._gpus_monitored(),
            usage_reported(
                monitor, self._outcomes, self._reports.tasks if self._reports else len(self._plan.nodes)
            ),
            closing(self._exchange(monitor, all_gather)) as exchange,
        ):
            monitor.state = self._current_state
            monitor.on_exit = lambda event: self._report_early_exit(event, monitor)
            with suppress(OSError):  # the node has just ended: the keeper reports how
                send_spec(child.feed, self._spec)
            monitor.send_to_node(StartNode(sys.path))
            outcome = (
                self._start(monitor)
                or self._take_rows(monitor)
                or self._join_cluster(monitor, exchange, child)
                or self._work(monitor, exchange)
            )
            if not self._is_outcome_sent:
                monitor.send_to_driver(outcome)
            return outcome

    def _exchange(self, monitor: NodeMonitor, all_gather: AllGather | None) -> Exchange:
        if self._plan.rendezvous == "driver" or all_gather is None:
            return DriverExchange(monitor)
        return BarrierExchange(monitor, all_gather, self._me.rank)

    def _start(self, monitor: NodeMonitor) -> Outcome | None:
        """Wait until the process is up and takes rows."""
        event = monitor.next_event(self._plan.start_timeout)
        if event is None:
            return self._outcomes.make(
                Ending.LOST,
                monitor,
                problem=f"its process did not get ready within {self._plan.start_timeout:g} s",
                fix="See what the modules of your function do on import, or raise start_timeout.",
            )
        if not isinstance(event, Ready):
            return self._outcomes.failure(monitor, event)
        monitor.send_to_driver(NodeReady())
        self._endpoints = event.endpoints
        self._state = NodeState.TAKING_ROWS
        return None

    def _current_state(self) -> NodeState:
        """Return what the node is doing, for the driver that asks why others wait for it."""
        is_working = self._state is NodeState.WORKING
        if is_working and self._row_writer is not None and self._row_writer.waits_for_source:
            return NodeState.WAITING_FOR_ROWS
        return self._state

    def _report_early_exit(self, event: TaskEvent, monitor: NodeMonitor) -> None:
        """Tell the driver at once that the node is over: the task's own thread may wait for a slow source."""
        if self._state is NodeState.TAKING_ROWS and not self._is_outcome_sent:
            self._is_outcome_sent = True
            monitor.send_to_driver(self._outcomes.early(monitor, event))

    def _take_rows(self, monitor: NodeMonitor) -> Outcome | None:
        """Bring this rank's rows to local disk, or to the beginning of the stream."""
        if self._row_writer is None:
            return None
        try:
            self._row_writer.prepare(monitor.send_to_driver, monitor.is_over.is_set)
        except EmberflowError as error:
            return self._outcomes.without_rows(error, monitor)
        return self._outcomes.failure(monitor, monitor.wait_for_event()) if monitor.is_over.is_set() else None

    def _join_cluster(self, monitor: NodeMonitor, exchange: Exchange, child: NodeProcess) -> Outcome | None:
        """Exchange addresses and the sizes of shards with all ranks, and let your function begin."""
        self._state = NodeState.WORKING
        facts = self._row_writer.facts() if self._row_writer else {}
        exchange.start_up(startup_facts(self._endpoints, facts))
        event = monitor.wait_for_event()
        if isinstance(event, NoCluster):
            return self._outcomes.refusal(DataError(event.problem, fix=event.fix), monitor)
        if not isinstance(event, Cluster):
            return self._outcomes.failure(monitor, event)
        monitor.send_to_node(event)
        if self._row_writer is not None:
            try:
                self._row_writer.hand_over(child.feed, lambda error: monitor.events.put(FeedFailed(error)))
            except OSError:  # the node has just ended: the keeper reports how
                return self._outcomes.failure(
                    monitor, monitor.next_event(deadlines.LEAVE_TIMEOUT) or KeeperGone()
                )
        self._on_joined()
        return None

    def _work(self, monitor: NodeMonitor, exchange: Exchange) -> Outcome:
        """Wait until all who train are done; then this node may leave, whether it returned or serves."""
        if not self._me.trains:
            exchange.start(DONE, None)
        while True:
            match event := self._window_steps.next_event(monitor):
                case Gathered(tag, _) if tag == DONE:
                    monitor.send_to_node(Leave())
                    return self._leave(monitor)
                case Returned():
                    self._on_returned(event, monitor)
                case Serving():
                    self._is_serving = True
                case _ if self._relay(event, monitor, exchange):
                    continue
                case _:
                    outcome = self._outcomes.failure(monitor, event)
                    is_tolerable = self._is_tolerable(outcome)
                    return self._wait_for_others(monitor, exchange, outcome) if is_tolerable else outcome
            if self._me.trains:
                exchange.start(DONE, None)

    def _is_tolerable(self, outcome: Outcome) -> bool:
        # The driver counts the losses: where it cannot be reached, one is the end.
        return self._has_driver and outcome.ending is Ending.LOST and self._plan.can_lose([self._me.rank])

    def _wait_for_others(self, monitor: NodeMonitor, exchange: Exchange, lost: Outcome) -> Outcome:
        """Stay until the others are done: if this task failed, Spark would end the whole stage."""
        outcome = dataclasses.replace(lost, is_tolerable=True)
        monitor.send_to_driver(outcome)
        if not self._outcomes.returned and not self._is_serving:  # else it has started that exchange already
            exchange.start(DONE, None)
        while True:
            event = monitor.wait_for_event()
            if isinstance(event, Gathered) and event.tag == DONE:
                return outcome

    def _relay(self, event: TaskEvent, monitor: NodeMonitor, exchange: Exchange) -> bool:
        """Pass on what nodes and driver send each other while nodes train; tell whether it was such an event."""
        match event:
            case TensorBoardStarted():
                monitor.send_to_driver(event)
            case WorkerLost():
                monitor.send_to_node(event)
            case Message() if isinstance(event, TO_DRIVER):
                monitor.send_to_driver(event)
            case Message() if isinstance(event, TO_NODE):
                monitor.send_to_node(event)
            case FeedFailed() if self._outcomes.returned:
                pass  # of rows that your function did not want: it has returned
            case _:
                return self._window_steps.handle(event, monitor, exchange)
        return True

    def _on_returned(self, returned: Returned, monitor: NodeMonitor) -> None:
        self._keep_value(returned)
        if self._plan.is_live:
            monitor.send_to_driver(FunctionReturned())

    def _keep_value(self, returned: Returned) -> None:
        """Hold the value: the folder is deleted with the process, an open file stays."""
        self._outcomes.returned = returned
        if self._me.rank == 0 or returned.value_bytes <= OTHERS_SMALL:
            key = bytes.fromhex(returned.value_key) or None
            path = str(self._folder / VALUE_FILE)
            self.value = LocalFile(path=path, size=returned.value_bytes, key=key).open()

    def _leave(self, monitor: NodeMonitor) -> Outcome:
        """Let the process end by itself, so that its exit handlers run; the keeper kills it if it does not."""
        timeout = self._leave_timeout()
        while (event := monitor.next_event(timeout)) and not is_exit(event):
            match event:
                case TensorBoardStarted():
                    monitor.send_to_driver(event)
                case Returned():
                    self._keep_value(event)
                    timeout = deadlines.LEAVE_TIMEOUT
                case Raised():
                    return self._outcomes.failure(monitor, event)
        if event is None and self._is_evaluating():
            text = f"not done {timeout:g} s (evaluator_timeout) after the others: ended without a last evaluation"
            monitor.send_to_driver(LogLines(text))
        monitor.drain_log(deadlines.LOG_DRAIN_TIMEOUT)
        return self._delivered(monitor)

    def _delivered(self, monitor: NodeMonitor) -> Outcome:
        """Send a large value to the driver: the others are done, and the node has ended."""
        ending, how = Ending.RETURNED, dict[str, str]()
        returned = self._outcomes.returned or Returned(seconds=0.0, value_bytes=0)
        if self._values is not None and self.value is not None:
            ending, how = self._values.deliver(self.value, returned.value_bytes)
        return self._outcomes.make(
            ending, monitor, seconds=returned.seconds, value_bytes=returned.value_bytes, **how
        )

    def _leave_timeout(self) -> float:
        if self._outcomes.returned or self._is_serving:
            return deadlines.LEAVE_TIMEOUT
        return self._plan.evaluator_timeout if self._is_evaluating() else deadlines.SERVING_TIMEOUT

    def _is_evaluating(self) -> bool:
        return self._me.role == "evaluator" and not self._outcomes.returned and not self._is_serving

    @contextmanager
    def _gpus_monitored(self) -> Iterator[None]:
        gpu_monitor = self._outcomes.gpu_monitor = GpuMonitor(self._spec.devices)
        try:
            yield
        finally:
            gpu_monitor.stop()


@contextmanager
def _monitored(
    child: NodeProcess, driver: "socket.socket | None", plan: RunPlan, reports: ReportSender | None
) -> Iterator[NodeMonitor]:
    listener = reports.send if reports else None
    monitor = NodeMonitor(child, driver, plan.forward_logs, plan.exchange_timeout, plan.log_copy, listener)
    try:
        yield monitor
    finally:
        monitor.close()
