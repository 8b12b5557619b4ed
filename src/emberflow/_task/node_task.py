"""What runs inside each Spark task: find out which node it is, run that node, return its outcome and value."""

import io
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext, suppress
from typing import IO, TYPE_CHECKING, Any

from emberflow._plan import deadlines
from emberflow._plan.plan import RunPlan
from emberflow._plan.roles import Node
from emberflow._protocol.frames import send
from emberflow._protocol.outcome import Ending, Outcome, ValueRoute, outcome_of
from emberflow._protocol.sockets import address_of, own_address_towards
from emberflow._task.driver_connection import dial, is_admitted, stand_by
from emberflow._task.events import QuitError
from emberflow._task.executor import executor_pid, executor_pidfds
from emberflow._task.node_setup import Surroundings, run_node
from emberflow._task.task_spec import TaskSpec
from emberflow._task.value_client import ValueClient
from emberflow.errors import EmberflowError, FailureCause

if TYPE_CHECKING:
    import pyarrow as pa

    from emberflow._protocol.sealed_socket import SealedSocket

OUTPUT_SCHEMA = "rank long, part long, outcome string, value binary"
CHUNK = 8 * 1024 * 1024  # bytes of a value in one row: Spark holds several copies of a row in memory


class NodeOutcomeError(EmberflowError):
    """Carries an outcome out of the stage, where no connection to the driver can."""


def run_task(spec: TaskSpec, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """Run one node; yield its outcome, and its value in chunks."""
    with suppress(QuitError):
        yield from _run_task(spec, batches)


def _run_task(spec: TaskSpec, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    context = task_context(spec.plan)
    if not spec.data.frames:
        for _ in batches:  # the single row for which Spark started this task
            pass
    me = spec.plan.nodes[spec.first_rank + context.partitionId()]
    host = own_host(context, spec.plan)
    with ExitStack() as held:
        driver = dial_driver(spec, me, host)
        if driver is not None:
            held.callback(driver.close)
        values = ValueClient(spec.values, spec.plan, spec.key, me.rank, has_driver=driver is not None)
        held.callback(values.close)
        surroundings = Surroundings(
            host=host,
            gpu_addresses=gpu_addresses(context, spec.plan, me),
            executor=executor_pid(),
            watched=held_pidfds(held),
            all_gather=context.allGather if spec.plan.launch == "barrier" else None,
        )
        try:
            outcome, value = run_node(spec, me, surroundings, driver, batches, values)
        except QuitError:
            raise
        except Exception as error:  # noqa: BLE001 - else the driver would believe that this task was killed
            traceback.print_exc()
            outcome, value = crashed(me, host, error), None
            if driver is not None:
                with suppress(OSError):
                    send(driver, outcome)
        held.enter_context(value or nullcontext())
        if outcome.ending is not Ending.RETURNED and not outcome.is_tolerable and driver is None:
            raise outcome_error(outcome)
        yield from outcome_rows(outcome, value)


def task_context(plan: RunPlan) -> Any:
    """Return Spark's context of this task."""
    from pyspark import BarrierTaskContext, TaskContext

    return BarrierTaskContext.get() if plan.launch == "barrier" else TaskContext.get()


def own_host(context: Any, plan: RunPlan) -> str:
    """Return the host of a task's executor: as Spark names it in a barrier stage, or its address."""
    if plan.launch != "barrier" and plan.driver_address is not None:
        return own_address_towards(plan.driver_address[0])
    address: str = context.getTaskInfos()[context.partitionId()].address
    return address.rpartition(":")[0]


def gpu_addresses(context: Any, plan: RunPlan, me: Node) -> tuple[str, ...]:
    """Return the GPUs that Spark's scheduler gave to a task."""
    if not plan.gpus or not me.trains or plan.gpu_source != "spark":
        return ()
    return tuple(context.resources()[plan.gpu_resource].addresses)


def held_pidfds(held: ExitStack, *, with_daemon: bool = False) -> tuple[int, ...]:
    """Return the descriptors of the executor's processes, open until the end of the block."""
    watched = executor_pidfds(with_daemon=with_daemon)
    for fd in watched:
        held.callback(os.close, fd)
    return watched


def dial_driver(spec: TaskSpec, me: Node, host: str) -> "SealedSocket | None":
    """Connect to the driver; where the plan can do without, None if it does not answer.

    Raises:
        QuitError: Spark has started this task though another one runs its node; now the attempt is over.
    """
    address, timeout = spec.plan.driver_address, spec.plan.start_timeout
    if address is None:
        return None
    try:
        driver = dial(address, spec.key, me.rank, host, deadlines.DIAL_TIMEOUT, busy_timeout=timeout)
        if is_admitted(driver, timeout):
            return driver
    except (OSError, EmberflowError) as error:
        if spec.plan.rendezvous == "barrier":
            return None
        refused = outcome_of(
            me,
            host,
            Ending.REFUSED,
            cause=FailureCause.DRIVER_UNREACHABLE,
            problem=f"it could not reach the driver at {address_of(*address)} ({error})",
            fix="Let executors reach the driver's host on any port or on those of port_range=..., or pass "
            "driver_host=... with an address that they can reach.",
        )
        raise outcome_error(refused) from error
    note = f"emberflow: another task of {me.name} runs its node; this one starts none, and waits"
    print(note, file=sys.stderr)  # noqa: T201 - it goes to the executor's log
    with driver:
        stand_by(driver)
    raise QuitError


def crashed(me: Node, host: str, error: Exception) -> Outcome:
    """Return the outcome of a node whose task raised an unexpected error."""
    return outcome_of(
        me,
        host,
        Ending.LOST,
        problem=f"its Spark task raised {type(error).__name__}: {error}",
        fix="Look at the executor's log on that host; it has the whole traceback.",
    )


def outcome_error(outcome: Outcome) -> NodeOutcomeError:
    """Return the error that carries an outcome to the driver where no connection can."""
    return NodeOutcomeError(outcome.to_error_text(), fix="See the driver's own error.")


def outcome_rows(outcome: Outcome, value: IO[bytes] | None) -> "Iterator[pa.RecordBatch]":
    """Yield the outcome, and the value in chunks unless it was sent in another way."""
    import pyarrow as pa

    is_in_rows = outcome.value_route is ValueRoute.ROWS and outcome.ending is not Ending.UNDELIVERED
    source = value if value is not None and is_in_rows else io.BytesIO()
    part, text = 0, outcome.to_json()
    while (chunk := source.read(CHUNK)) or part == 0:
        columns = {"rank": [outcome.rank], "part": [part], "outcome": [text], "value": [chunk]}
        yield pa.RecordBatch.from_pydict(columns)
        part, text = part + 1, ""
