"""How one node ended, from what its task has received and observed."""

from typing import Any

from emberflow._feed.source_errors import is_transient
from emberflow._node.node_spec import NodeSpec
from emberflow._plan import deadlines
from emberflow._protocol.node_messages import NodeExited, Raised, Returned
from emberflow._protocol.outcome import MANAGED_FIX, Ending, Outcome, describe_exit, describe_stop
from emberflow._task.events import FeedFailed, NodeStopped, TaskEvent
from emberflow._task.gpus import GpuMonitor
from emberflow._task.node_monitor import NodeMonitor
from emberflow._task.row_writer import RowsEndedError, RowWriter
from emberflow.errors import EmberflowError

EXECUTOR_ENDED = "its executor has ended"
WHY_IT_ENDED = (
    "See in Spark's UI or log why: the session was stopped, the executor was removed or killed, or its host is gone. "
    "With max_restarts all nodes are started again where Spark has executors left."
)


class NodeOutcomes:
    """Makes the outcome of one node.

    Attributes:
        returned: What the node sent when your function returned, if it has.
        gpu_monitor: What samples the node's GPUs, once it runs.
    """

    def __init__(self, spec: NodeSpec, row_writer: RowWriter | None = None) -> None:
        self.returned: Returned | None = None
        self.gpu_monitor: GpuMonitor | None = None
        self._spec = spec
        self._row_writer = row_writer

    def make(self, ending: Ending, monitor: NodeMonitor | None = None, **known: Any) -> Outcome:
        """Return how this node ended."""
        return Outcome(
            rank=self._spec.me.rank,
            role=self._spec.me.role,
            index=self._spec.me.index,
            host=self._spec.host,
            ending=ending,
            devices=self._spec.devices,
            gpus=tuple(self.gpu_monitor.seen()) if self.gpu_monitor else (),
            log_tail=monitor.log_tail(with_noise=ending is not Ending.RETURNED) if monitor else "",
            feed=self._fed(),
            metrics=tuple(monitor.metrics.items()) if monitor else (),
            **known,
        )

    def refusal(self, error: EmberflowError, monitor: NodeMonitor | None = None) -> Outcome:
        """Return the outcome of a node that cannot run, with the error's own text and kind."""
        return self.make(
            Ending.REFUSED,
            monitor,
            cause=error.cause,
            problem=error.problem,
            fix=error.fix,
            exception_type=type(error).__name__,
            is_transient=is_transient(error),
        )

    def without_rows(self, error: EmberflowError, monitor: NodeMonitor) -> Outcome:
        """Return the outcome of a node whose rows do not arrive: a loss where Spark failed, else what was raised."""
        if isinstance(error, RowsEndedError):
            return self.make(Ending.LOST, monitor, problem=error.problem, fix=error.fix)
        return self.refusal(error, monitor)

    def failure(self, monitor: NodeMonitor, event: TaskEvent) -> Outcome:
        """Your function raised, the node could not begin or ended too early, or its source of rows failed."""
        if isinstance(event, FeedFailed):
            return self.without_rows(event.error, monitor)
        if isinstance(event, Raised):
            monitor.drain_log(deadlines.LAST_LINES_TIMEOUT)
            return self._raised(monitor, event)
        monitor.drain_log(deadlines.LOG_DRAIN_TIMEOUT)
        return self.loss(monitor, event)

    def early(self, monitor: NodeMonitor, event: TaskEvent) -> Outcome:
        """Return the outcome of a node that is over before it has its rows, on the thread that reads its log."""
        return self._raised(monitor, event) if isinstance(event, Raised) else self.loss(monitor, event)

    def _raised(self, monitor: NodeMonitor, event: Raised) -> Outcome:
        return self.make(
            Ending.REFUSED if event.is_refused else Ending.RAISED,
            monitor,
            problem=event.problem,
            fix=event.fix,
            exception_type=event.exception_type,
            seconds=event.seconds,
        )

    def loss(self, monitor: NodeMonitor, event: TaskEvent) -> Outcome:
        """Return the outcome of a node that exited without reporting a result."""
        match event:
            case NodeStopped(limit):
                problem, fix = describe_stop(limit)
            case NodeExited(executor_ended=True):
                problem, fix = EXECUTOR_ENDED, WHY_IT_ENDED
            case NodeExited(status):
                problem, fix = describe_exit(status)
            case _:
                problem, fix = describe_exit(None)
        if self._spec.plan.launch == "manager":
            fix = MANAGED_FIX
        return self.make(Ending.LOST, monitor, problem=problem, fix=fix)

    def _fed(self) -> dict[str, Any]:
        if self._row_writer is None:
            return {}
        datasets = self.returned.datasets if self.returned else {}
        return {**self._row_writer.progress.as_dict(), "datasets": datasets}
