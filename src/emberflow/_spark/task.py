"""What runs inside each Spark task: one node, from its start to the end of its last descendant."""

import importlib.util
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import cloudpickle

from emberflow._node.child import Child, running_child
from emberflow._node.frames import Message
from emberflow._node.main import JOB_FILE, VALUE_FILE, NodeOrder
from emberflow._node.outcome import Outcome, describe_exit
from emberflow._node.watch import Watch
from emberflow._plan.plan import RunPlan
from emberflow._plan.roles import Node
from emberflow._spark.gathering import BarrierGathering, DriverGathering, Gathering
from emberflow._spark.hub import dial
from emberflow.errors import EmberflowError

if TYPE_CHECKING:
    import socket

    import pyarrow as pa
    from pyspark import BarrierTaskContext

OUTPUT_SCHEMA = "rank long, part long, outcome string, value binary"
DIAL_TIMEOUT = 5.0
LEAVE_TIMEOUT = 10.0
CHUNK = 8 * 1024 * 1024
SMALL_VALUE = 64 * 1024
MARK = "EMBERFLOW-OUTCOME:"
SECRETS = ("PYTHON_WORKER_FACTORY_SECRET", "_PYSPARK_DRIVER_CONN_INFO_PATH")


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """All that a task is sent. The key travels here, inside Spark's own serialised closure, and nowhere else."""

    plan: RunPlan
    key: bytes = field(repr=False)
    fn: bytes = field(repr=False)


class NodeOverError(EmberflowError):
    """Carries an outcome out of the stage, where no wire to the driver can."""


class _QuitError(Exception):
    """The driver has told this task to end, or is gone."""


def run_task(spec: TaskSpec, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """Run one node; yield its outcome, and its value in chunks."""
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    for _ in batches:  # the single row that gave this rank its task
        pass
    me = spec.plan.nodes[context.partitionId()]
    host = context.getTaskInfos()[me.rank].address.rpartition(":")[0]
    driver = _dial(spec, me, host)
    try:
        folder = _make_folder(spec.plan, me)
        try:
            outcome, value = _Run(spec, me, host, folder, driver).to_its_end(context)
        except _QuitError:
            return
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if outcome.ending != "returned" and driver is None:
            raise NodeOverError(MARK + outcome.to_json() + MARK, fix="See the driver's own error.")
        yield from _rows(outcome, value)
    finally:
        if driver is not None:
            driver.close()


class _Run:
    """One node's life, seen from its task."""

    def __init__(
        self, spec: TaskSpec, me: Node, host: str, folder: Path, driver: "socket.socket | None"
    ) -> None:
        self._spec = spec
        self._me = me
        self._host = host
        self._folder = folder
        self._driver = driver
        self._value = b""

    def to_its_end(self, context: "BarrierTaskContext") -> tuple[Outcome, bytes]:
        """Start the node, bring it together with the others, wait for its end; nothing is left then."""
        refusal = _refusal(self._spec.plan)
        if refusal:
            outcome = self._outcome("refused", problem=refusal[0], fix=refusal[1])
            self._tell_at_once(outcome)
            return outcome, b""
        held = () if self._driver is None else (self._driver.fileno(),)
        with (
            running_child(self._folder, _environment(self._spec.plan), held) as child,
            _watching(child, self._driver, self._spec.plan.forward_logs) as watch,
        ):
            gathering: Gathering = (
                DriverGathering(watch)
                if self._spec.plan.meeting == "driver"
                else BarrierGathering(watch, context)
            )
            watch.tell_node(self._start_message())
            outcome = self._follow(watch, gathering)
            watch.tell_driver({"outcome": outcome.to_json()})
            return outcome, self._value

    def _follow(self, watch: Watch, gathering: Gathering) -> Outcome:
        """Go through the stages of a node's life, each begun by an event."""
        timeout: float | None = self._spec.plan.start_timeout
        ending: Message = {}
        while True:
            event = _next(watch, timeout)
            if event is None:
                return self._outcome(
                    "lost",
                    watch,
                    problem=f"its process did not get ready within {self._spec.plan.start_timeout:g} s.",
                    fix="See what the modules of your function do on import, or raise start_timeout.",
                )
            if "ready" in event:
                watch.tell_driver({"ready": True})
                gathering.start("meet", event["ready"])
                timeout = None
            elif event.get("gathered") == "meet":
                watch.tell_node({"cluster": event["values"]})
            elif event.get("ended") == "returned":
                ending = event
                self._value = (self._folder / VALUE_FILE).read_bytes()  # the folder goes with the process
                gathering.start("done", None)
            elif event.get("gathered") == "done":
                watch.tell_node({"leave": True})
                return self._left(watch, ending)
            else:
                return self._ended_badly(watch, event)

    def _ended_badly(self, watch: Watch, event: Message) -> Outcome:
        """Your function raised, or the process ended before it returned."""
        if "ended" in event:
            watch.drain_log(0.2)  # what it printed last is on its way
            return self._outcome("raised", watch, **_known(event))
        watch.drain_log(1.0)
        problem, fix = describe_exit(event.get("exit"))
        return self._outcome("lost", watch, problem=problem, fix=fix)

    def _left(self, watch: Watch, ending: Message) -> Outcome:
        """Let the process end by itself, so that its exit handlers run; the keeper ends it if it does not."""
        event: Message | None = {}
        while event is not None and not ("exit" in event or "keeper_gone" in event):
            event = _next(watch, LEAVE_TIMEOUT)
        watch.drain_log(1.0)
        return self._outcome("returned", watch, **_known(ending))

    def _start_message(self) -> Message:
        plan = self._spec.plan
        order = NodeOrder(
            me=self._me,
            nodes=plan.nodes,
            attempt=plan.attempt,
            host=self._host,
            folder=str(self._folder),
            devices=(),
            fn=self._spec.fn,
        )
        (self._folder / JOB_FILE).write_bytes(cloudpickle.dumps(order))
        return {"folder": str(self._folder), "sys_path": sys.path}

    def _outcome(self, ending: str, watch: Watch | None = None, **known: object) -> Outcome:
        return Outcome(
            rank=self._me.rank,
            role=self._me.role,
            index=self._me.index,
            host=self._host,
            ending=ending,  # type: ignore[arg-type]
            log_tail=watch.tail() if watch else "",
            **known,  # type: ignore[arg-type]
        )

    def _tell_at_once(self, outcome: Outcome) -> None:
        from emberflow._node.frames import send

        if self._driver is not None:
            send(self._driver, {"outcome": outcome.to_json()})


@contextmanager
def _watching(child: Child, driver: "socket.socket | None", forward_logs: bool) -> Iterator[Watch]:
    watch = Watch(child, driver, forward_logs)
    try:
        yield watch
    finally:
        watch.close()


def _next(watch: Watch, timeout: float | None) -> Message | None:
    """Return the next event, or None at the timeout; `_QuitError` when the driver wants us gone."""
    import queue

    try:
        event = watch.queue.get(timeout=timeout)
    except queue.Empty:
        return None
    if "quit" in event or "driver_gone" in event:
        raise _QuitError
    return event


def _known(event: Message) -> dict[str, object]:
    names = ("problem", "fix", "exception_type", "seconds", "value_bytes", "notes")
    return {name: event[name] for name in names if name in event}


def _dial(spec: TaskSpec, me: Node, host: str) -> "socket.socket | None":
    """Connect to the driver; where the plan can do without, None if it does not answer."""
    address = spec.plan.driver_address
    if address is None:
        return None
    try:
        return dial(address, spec.key, me.rank, host, DIAL_TIMEOUT)
    except (OSError, EmberflowError) as error:
        if spec.plan.meeting == "barrier":
            return None
        outcome = Outcome(
            rank=me.rank,
            role=me.role,
            index=me.index,
            host=host,
            ending="refused",
            exception_type="DriverUnreachable",
            problem=f"it could not reach the driver at {address[0]}:{address[1]} ({error})",
            fix="Let executors reach the driver's host on any port, or pass driver_host=... with an address "
            "that they can reach.",
        )
        raise NodeOverError(MARK + outcome.to_json() + MARK, fix=outcome.fix) from error


def _refusal(plan: RunPlan) -> tuple[str, str] | None:
    """Return why no node can start in this Python, and the remedy; None if it can."""
    here = sys.version_info[:2]
    if here != plan.python:
        versions = f"{here[0]}.{here[1]} ({sys.executable}), the driver {plan.python[0]}.{plan.python[1]}"
        return (
            f"executors run Python {versions}",
            "Set the environment variable PYSPARK_PYTHON to the driver's Python before the session starts.",
        )
    if importlib.util.find_spec("tensorflow") is None:
        return (
            f"TensorFlow is not installed for {sys.executable} on the executors",
            "Install emberflow there (pip install emberflow), or set PYSPARK_PYTHON to a Python that has it.",
        )
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        return (
            f"Spark limits its Python processes to {limit >> 20} MB of address space; TensorFlow maps more",
            "Unset spark.executor.pyspark.memory, and raise spark.executor.memoryOverhead instead.",
        )
    return None


def _environment(plan: RunPlan) -> dict[str, str]:
    """Return the node's environment: the Spark worker's, less its secrets."""
    kept = {name: value for name, value in os.environ.items() if name not in SECRETS}
    kept.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # else each node opens with a page about CPU features
    return kept | plan.environment | {"EMBERFLOW_RUN": plan.run_id, "PYTHONUNBUFFERED": "1"}


def _make_folder(plan: RunPlan, me: Node) -> Path:
    """Make the node's folder in Spark's local directory, which Spark deletes even if all of ours is killed."""
    local = (os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()).split(",")[0]
    parent = local if Path(local).is_dir() else tempfile.gettempdir()
    folder = Path(tempfile.mkdtemp(prefix=f"emberflow-{plan.run_id}-{plan.attempt}-{me.rank}-", dir=parent))
    (folder / "work").mkdir(mode=0o700)
    return folder


def _rows(outcome: Outcome, value: bytes) -> "Iterator[pa.RecordBatch]":
    """Yield the outcome and the value; the driver wants all of the chief's, and only small ones of others."""
    import pyarrow as pa

    wanted = value if outcome.rank == 0 or len(value) <= SMALL_VALUE else b""
    chunks = [wanted[start : start + CHUNK] for start in range(0, len(wanted), CHUNK)] or [b""]
    for part, chunk in enumerate(chunks):
        text = outcome.to_json() if part == 0 else ""
        columns = {"rank": [outcome.rank], "part": [part], "outcome": [text], "value": [chunk]}
        yield pa.RecordBatch.from_pydict(columns)
