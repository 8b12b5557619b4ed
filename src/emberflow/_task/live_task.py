"""What runs inside each Spark task that starts a live node: start its attendant, return once all nodes are up."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from emberflow._plan.roles import Node
from emberflow._protocol.messages import decode
from emberflow._protocol.node_messages import NodeRefused, NodeUp
from emberflow._protocol.outcome import Ending, outcome_of
from emberflow._task.attendant import RELEASE, AttendantOrder, packed
from emberflow._task.executor import executor_pid
from emberflow._task.node_setup import SECRETS, Surroundings
from emberflow._task.node_task import (
    NodeOutcomeError,
    gpu_addresses,
    held_pidfds,
    outcome_error,
    own_host,
    task_context,
)
from emberflow._task.task_spec import TaskSpec

if TYPE_CHECKING:
    import pyarrow as pa


def run_live_task(spec: TaskSpec, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """Do what `start_live_node` does, as a task of Spark SQL."""
    import pyarrow as pa

    for row in start_live_node(spec, batches):
        yield pa.RecordBatch.from_pylist([row])


def start_live_node(spec: TaskSpec, numbers: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Start one live node; yield its rank once all nodes are up, or at their end, as the plan says.

    If they cannot be up, the driver knows why.
    """
    for _ in numbers:  # the single row for which Spark started this task
        pass
    context = task_context(spec.plan)
    me = spec.plan.nodes[spec.first_rank + context.partitionId()]
    with ExitStack() as held:
        surroundings = Surroundings(
            host=own_host(context, spec.plan),
            gpu_addresses=gpu_addresses(context, spec.plan, me),
            executor=executor_pid(),
            watched=held_pidfds(held, with_daemon=spec.plan.is_local),
        )
        _check_watched(me, surroundings)
        order = AttendantOrder(spec=spec, rank=me.rank, surroundings=surroundings, sys_path=sys.path)
        if _start_attendant(order):
            yield {"rank": me.rank, "part": 0, "outcome": "", "value": b""}


def _start_attendant(order: AttendantOrder) -> bool:
    """Start the attendant and wait for its answer, or for its end; tell whether all nodes were up."""
    attendant = subprocess.Popen(
        [sys.executable, "-m", "emberflow._task.attendant"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        env=_environment(order.spec.plan.run_id),
        pass_fds=order.surroundings.watched,
        start_new_session=True,
    )
    # It outlives this task, and its exit status must be collected.
    end = threading.Thread(target=attendant.wait, name="emberflow-attendant", daemon=True)
    end.start()
    assert attendant.stdin is not None  # noqa: S101 - it is a pipe, for the type checker
    assert attendant.stdout is not None  # noqa: S101
    with attendant.stdin, attendant.stdout, suppress(BrokenPipeError):  # it may have ended already
        attendant.stdin.write(packed(order))
        line = attendant.stdout.readline()
        answer = decode(line) if line else None
        if isinstance(answer, NodeRefused):
            raise NodeOutcomeError(answer.outcome, fix="See the driver's own error.")
        if isinstance(answer, NodeUp) and order.spec.plan.holds_tasks:
            end.join()  # if this task is ended before, the attendant ends with it, since it was not released
            return True
        if isinstance(answer, NodeUp):
            attendant.stdin.write(RELEASE)
            return True
    return False


def _environment(run_id: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in SECRETS}
    return kept | {"EMBERFLOW_RUN": run_id}  # ps and the like then show what it belongs to


def _check_watched(me: Node, surroundings: Surroundings) -> None:
    """Refuse to start a process that nothing would end with its executor."""
    if not surroundings.watched:
        refused = outcome_of(
            me,
            surroundings.host,
            Ending.REFUSED,
            problem="it cannot watch its executor: the kernel offers no pidfds here, or the executor is just ending",
            fix="Run executors on Linux 5.3 or newer, in containers that allow pidfd_open; or use ef.run, which "
            "needs none.",
        )
        raise outcome_error(refused)
