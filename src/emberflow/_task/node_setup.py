"""From what a task was sent to a running node: its folder, its GPUs, its environment, and whether it can run here."""

import dataclasses
import importlib.util
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from emberflow import storage
from emberflow._node.node_spec import LiveSpec, NodeSpec
from emberflow._plan.plan import RunPlan
from emberflow._plan.roles import Node
from emberflow._protocol.derived_keys import ranks_key
from emberflow._protocol.frames import send
from emberflow._protocol.outcome import Outcome
from emberflow._task.exchange import AllGather
from emberflow._task.gpu_claims import await_free
from emberflow._task.gpu_locks import lock
from emberflow._task.gpus import claimed_by_nvml, gpu_environment, gpu_identity, visible_devices
from emberflow._task.node_outcomes import NodeOutcomes
from emberflow._task.node_runner import NodeRunner
from emberflow._task.report_sender import ReportSender
from emberflow._task.row_writer import RowWriter
from emberflow._task.task_spec import TaskSpec
from emberflow._task.value_client import ValueClient
from emberflow._task.warm_start import borrowed_gpus
from emberflow.errors import EmberflowError

if TYPE_CHECKING:
    import pyarrow as pa

    from emberflow._protocol.sealed_socket import SealedSocket

# Without these glibc may return the memory of each step's tensors to the system and get it back page by page: a step
# of 4.2 M parameters then takes nearly twice as long, or not, depending on what was allocated before it.
MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),  # the greatest that glibc accepts
    "MALLOC_TOP_PAD_": str(64 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
}
SECRETS = ("PYTHON_WORKER_FACTORY_SECRET", "_PYSPARK_DRIVER_CONN_INFO_PATH", "_SPARK_AUTH_SECRET")


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What Spark gives to the task of a node.

    Attributes:
        host: The executor's host, as Spark names it.
        gpu_addresses: The GPUs that Spark's scheduler gave to the task.
        executor: Process id of the executor's JVM.
        watched: Descriptors of processes that the node must not outlive.
        all_gather: Spark's exchange among the tasks of a stage; None where nodes meet at the driver only.
        tf_port: TensorFlow's port, where a cluster manager has told it to all tasks.
        reports: Gets what the node reports, where no driver decides anything.
    """

    host: str
    gpu_addresses: tuple[str, ...] = ()
    executor: int = 0
    watched: tuple[int, ...] = ()
    all_gather: AllGather | None = None
    tf_port: int = 0
    reports: ReportSender | None = None


def run_node(
    spec: TaskSpec,
    me: Node,
    surroundings: Surroundings,
    driver: "SealedSocket | None",
    rows: "Iterator[pa.RecordBatch]",
    values: ValueClient,
    on_joined: Callable[[], None] = lambda: None,
) -> tuple[Outcome, IO[bytes] | None]:
    """Give the node its folder and its devices, and run it to its end.

    Args:
        spec: What the task was sent.
        me: Which node it is.
        surroundings: What Spark gives to its task.
        driver: The connection to the driver, if it can be reached.
        rows: What Spark brings: the rows of this rank's partition.
        values: Large values to and from the driver.
        on_joined: Called once all nodes have met, when your function may begin.

    Returns:
        How it ended, and the file with its value, if it has one.
    """
    plan = spec.plan
    storage.apply_settings(spec.storage)
    with ExitStack() as held:
        folder = _make_folder(plan, me)
        held.callback(shutil.rmtree, folder, ignore_errors=True)
        node_spec = NodeSpec(
            me=me,
            plan=plan,
            host=surroundings.host,
            folder=str(folder),
            devices=(),
            data=spec.data.names,
            streams=not spec.data.cache,
            key=ranks_key(spec.key),
            fn=spec.fn,
            storage=spec.storage,
            live=_live_spec(spec, surroundings) if plan.is_live else None,
            tf_port=surroundings.tf_port,
        )
        try:
            check_here(plan)
            devices = _devices_of(spec, me, surroundings, held)
            node_spec = dataclasses.replace(node_spec, devices=devices)
            values.check()
            node_spec = dataclasses.replace(node_spec, fn_file=values.fetch_function(folder))
        except EmberflowError as error:
            outcome = NodeOutcomes(node_spec).refusal(error)
            if driver is not None:
                send(driver, outcome)
            elif surroundings.reports is not None:
                surroundings.reports.send(outcome)
            return outcome, None
        row_writer = _row_writer(spec, me, rows, folder) if spec.data.names and me.trains else None
        if row_writer is not None:
            held.callback(row_writer.close)
        runner = NodeRunner(node_spec, row_writer, values, on_joined, surroundings.reports)
        environment = _environment(plan, me) | gpu_environment(node_spec.devices)
        outcome = runner.run(environment, driver, surroundings.watched, surroundings.all_gather, spec.warm)
        return outcome, runner.value


def _live_spec(spec: TaskSpec, surroundings: Surroundings) -> LiveSpec:
    return LiveSpec(
        jvm=surroundings.executor, spool_dir=spec.data.spool_dir, spool_limit=spec.data.spool_limit
    )


def _row_writer(spec: TaskSpec, me: Node, rows: "Iterator[pa.RecordBatch]", folder: Path) -> RowWriter:
    ranks = sum(node.trains for node in spec.plan.nodes)
    return RowWriter(
        spec.data,
        rank=me.rank,
        ranks=ranks,
        rows=rows if spec.data.frames else iter(()),
        folder=folder,
        encrypts=spec.plan.encrypts_files,
    )


def _devices_of(spec: TaskSpec, me: Node, surroundings: Surroundings, held: ExitStack) -> tuple[str, ...]:
    """Return the GPUs of this node alone, which it holds to its end; none for ps and evaluator."""
    plan = spec.plan
    if not plan.gpus or not me.trains:
        return ()
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    devices = visible_devices(surroundings.gpu_addresses[: plan.gpus], seen)
    if spec.warm and (borrowed := borrowed_gpus(spec.warm, surroundings.host, devices, held)):
        await_free(borrowed)
        return borrowed
    if plan.gpu_source == "nvml":
        return held.enter_context(claimed_by_nvml(plan.gpus, seen))
    for device in devices:  # before scoring is asked to end: from then on it finds the GPU locked
        held.enter_context(lock(device, gpu_identity(device, surroundings.executor)))
    await_free(devices)
    return devices


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
        check_tensorboard()
    if plan.checkpoints and not storage.exists(plan.checkpoints.probe):
        raise EmberflowError(
            f"it does not see the checkpoint folder {plan.checkpoints.folder} that the driver sees",
            fix="Pass a checkpoint_dir on storage that all nodes share: hdfs://, s3://, or a network mount.",
        )


def check_tensorboard() -> None:
    """Refuse to show TensorBoard with a Python that cannot run it."""
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
