"""What runs inside each Spark task: find out which node it is, run that node, return its outcome and value."""

import dataclasses
import hmac
import importlib.util
import io
import os
import resource
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from emberflow import storage
from emberflow._node.node_spec import NodeSpec
from emberflow._plan import deadlines
from emberflow._plan.plan import RunPlan
from emberflow._plan.roles import Node
from emberflow._protocol.frames import send
from emberflow._protocol.outcome import Ending, Outcome, ValueRoute, outcome_of
from emberflow._protocol.sockets import address_of
from emberflow._task.driver_connection import dial
from emberflow._task.events import QuitError
from emberflow._task.gpu_claims import await_free
from emberflow._task.gpus import claimed_by_nvml, gpu_environment, visible_devices
from emberflow._task.node_outcomes import NodeOutcomes
from emberflow._task.node_runner import NodeRunner
from emberflow._task.row_writer import DataSpec, RowWriter
from emberflow._task.value_client import ValueClient, ValuePlan
from emberflow.errors import EmberflowError, FailureCause

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import BarrierTaskContext

    from emberflow._protocol.sealed_socket import SealedSocket

OUTPUT_SCHEMA = "rank long, part long, outcome string, value binary"
CHUNK = 8 * 1024 * 1024  # bytes of a value in one row: Spark holds several copies of a row in memory
# Without these glibc may return the memory of each step's tensors to the system and get it back page by page: a step
# of 4.2 M parameters then takes nearly twice as long, or not, depending on what was allocated before it.
MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),  # the greatest that glibc accepts
    "MALLOC_TOP_PAD_": str(64 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
}
SECRETS = ("PYTHON_WORKER_FACTORY_SECRET", "_PYSPARK_DRIVER_CONN_INFO_PATH", "_SPARK_AUTH_SECRET")


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """All that a task is sent. The key travels here, inside Spark's own serialised closure, and nowhere else."""

    plan: RunPlan
    key: bytes = field(repr=False)
    fn: bytes = field(repr=False)
    data: DataSpec = field(default_factory=DataSpec)
    values: ValuePlan = field(default_factory=ValuePlan)
    first_rank: int = 0


class NodeOutcomeError(EmberflowError):
    """Carries an outcome out of the stage, where no connection to the driver can."""


def run_task(spec: TaskSpec, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """Run one node; yield its outcome, and its value in chunks."""
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    if not spec.data.frames:
        for _ in batches:  # the single row for which Spark started this task
            pass
    me = spec.plan.nodes[spec.first_rank + context.partitionId()]
    host = context.getTaskInfos()[context.partitionId()].address.rpartition(":")[0]
    with ExitStack() as held:
        driver = _dial(spec, me, host)
        if driver is not None:
            held.callback(driver.close)
        values = ValueClient(spec.values, spec.plan, spec.key, me.rank, has_driver=driver is not None)
        held.callback(values.close)
        try:
            outcome, value = _run_node(spec, me, host, driver, context, batches, values)
        except QuitError:
            return
        except Exception as error:  # noqa: BLE001 - else the driver would believe that this task was killed
            traceback.print_exc()
            outcome, value = _crashed(me, host, error), None
            if driver is not None:
                with suppress(OSError):
                    send(driver, outcome)
        held.enter_context(value or nullcontext())
        if outcome.ending is not Ending.RETURNED and not outcome.is_tolerable and driver is None:
            raise _outcome_error(outcome)
        yield from _rows(outcome, value)


def _run_node(
    spec: TaskSpec,
    me: Node,
    host: str,
    driver: "SealedSocket | None",
    context: "BarrierTaskContext",
    rows: "Iterator[pa.RecordBatch]",
    values: ValueClient | None = None,
) -> tuple[Outcome, IO[bytes] | None]:
    """Give the node its folder and its devices, and run it."""
    plan = spec.plan
    with ExitStack() as held:
        folder = _make_folder(plan, me)
        held.callback(shutil.rmtree, folder, ignore_errors=True)
        node_spec = NodeSpec(
            me=me,
            plan=plan,
            host=host,
            folder=str(folder),
            devices=(),
            data=spec.data.names,
            streams=not spec.data.cache,
            key=hmac.digest(spec.key, b"ranks", "sha256"),
            fn=spec.fn,
        )
        try:
            check_here(plan)
            node_spec = dataclasses.replace(node_spec, devices=_devices_of(plan, me, context, held))
            if values is not None:
                values.check()
                node_spec = dataclasses.replace(node_spec, fn_path=values.fetch_function(folder))
        except EmberflowError as error:
            outcome = NodeOutcomes(node_spec).refusal(error)
            if driver is not None:
                send(driver, outcome)
            return outcome, None
        row_writer = _row_writer(spec, me, rows, folder) if spec.data.names and me.trains else None
        if row_writer is not None:
            held.callback(row_writer.close)
        runner = NodeRunner(node_spec, row_writer, values)
        environment = _environment(plan, me) | gpu_environment(node_spec.devices)
        return runner.run(environment, driver, context), runner.value


def _row_writer(spec: TaskSpec, me: Node, rows: "Iterator[pa.RecordBatch]", folder: Path) -> RowWriter:
    ranks = sum(node.trains for node in spec.plan.nodes)
    return RowWriter(
        spec.data, rank=me.rank, ranks=ranks, rows=rows if spec.data.frames else iter(()), folder=folder
    )


def _devices_of(plan: RunPlan, me: Node, context: "BarrierTaskContext", held: ExitStack) -> tuple[str, ...]:
    """Return the GPUs of this node alone; none for ps and evaluator."""
    if not plan.gpus or not me.trains:
        return ()
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if plan.gpu_source == "nvml":
        return held.enter_context(claimed_by_nvml(plan.gpus, seen))
    addresses: Sequence[str] = context.resources()[plan.gpu_resource].addresses
    devices = visible_devices(addresses[: plan.gpus], seen)
    await_free(devices)
    return devices


def _dial(spec: TaskSpec, me: Node, host: str) -> "SealedSocket | None":
    """Connect to the driver; where the plan can do without, None if it does not answer."""
    address = spec.plan.driver_address
    if address is None:
        return None
    try:
        return dial(
            address, spec.key, me.rank, host, deadlines.DIAL_TIMEOUT, busy_timeout=spec.plan.start_timeout
        )
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
        raise _outcome_error(refused) from error


def _crashed(me: Node, host: str, error: Exception) -> Outcome:
    """Return the outcome of a node whose task raised an unexpected error."""
    return outcome_of(
        me,
        host,
        Ending.LOST,
        problem=f"its Spark task raised {type(error).__name__}: {error}",
        fix="Look at the executor's log on that host; it has the whole traceback.",
    )


def _outcome_error(outcome: Outcome) -> NodeOutcomeError:
    return NodeOutcomeError(outcome.to_error_text(), fix="See the driver's own error.")


def check_here(plan: RunPlan) -> None:
    """Refuse to start a node in a Python that cannot run it."""
    here = sys.version_info[:2]
    if here != plan.python:
        versions = f"{here[0]}.{here[1]} ({sys.executable}), the driver {plan.python[0]}.{plan.python[1]}"
        raise EmberflowError(
            f"executors run Python {versions}",
            fix="Set the environment variable PYSPARK_PYTHON to the driver's Python before the session starts.",
        )
    if importlib.util.find_spec("tensorflow") is None:
        raise EmberflowError(
            f"TensorFlow is not installed for {sys.executable} on the executors",
            fix="pip install emberflow there, or set PYSPARK_PYTHON to a Python that has it.",
        )
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        raise EmberflowError(
            f"Spark limits its Python processes to {limit >> 20} MB of address space; TensorFlow maps more",
            fix="Unset spark.executor.pyspark.memory, and raise spark.executor.memoryOverhead instead.",
        )
    if plan.tensorboard:
        _check_tensorboard()
    if plan.checkpoints and not storage.exists(plan.checkpoints.probe):
        raise EmberflowError(
            f"it does not see the checkpoint folder {plan.checkpoints.folder} that the driver sees",
            fix="Pass a checkpoint_dir on storage that all nodes share: hdfs://, s3://, or a network mount.",
        )


def _check_tensorboard() -> None:
    # TensorBoard takes pkg_resources from setuptools, which version 82 no longer has.
    for name in ("tensorboard", "pkg_resources"):
        if importlib.util.find_spec(name) is None:
            raise EmberflowError(
                f"TensorBoard cannot run: {sys.executable} has no module {name}",
                fix="pip install 'emberflow[tensorboard]' on the executors, or leave out tensorboard.",
            )


def _environment(plan: RunPlan, me: Node) -> dict[str, str]:
    """Return the node's environment: the Spark worker's, less its secrets, and which node it is."""
    kept = {name: value for name, value in os.environ.items() if name not in SECRETS}
    kept.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # else each node opens with a page about CPU features
    names = {"EMBERFLOW_RUN": plan.run_id, "EMBERFLOW_NODE": me.name}
    return MALLOC | kept | names | {"PYTHONUNBUFFERED": "1"}


def _make_folder(plan: RunPlan, me: Node) -> Path:
    """Make the node's folder in Spark's local directory, which Spark deletes even if all processes are killed."""
    local = (os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()).split(",")[0]
    parent = local if Path(local).is_dir() else tempfile.gettempdir()
    folder = Path(tempfile.mkdtemp(prefix=f"emberflow-{plan.run_id}-{plan.attempt}-{me.rank}-", dir=parent))
    (folder / "work").mkdir(mode=0o700)
    return folder


def _rows(outcome: Outcome, value: IO[bytes] | None) -> "Iterator[pa.RecordBatch]":
    """Yield the outcome, and the value in chunks unless it was sent in another way."""
    import pyarrow as pa

    is_in_rows = outcome.value_route is ValueRoute.ROWS and outcome.ending is not Ending.UNDELIVERED
    source = value if value is not None and is_in_rows else io.BytesIO()
    part, text = 0, outcome.to_json()
    while (chunk := source.read(CHUNK)) or part == 0:
        columns = {"rank": [outcome.rank], "part": [part], "outcome": [text], "value": [chunk]}
        yield pa.RecordBatch.from_pydict(columns)
        part, text = part + 1, ""
