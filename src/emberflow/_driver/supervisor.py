"""The attempts of one run: start all nodes, and again after a loss, from the last checkpoint."""

import dataclasses
import logging
import secrets
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from typing import IO, TYPE_CHECKING, Any

from emberflow._driver.allocation import REASON
from emberflow._driver.attempt import Attempt
from emberflow._driver.checkpoint_plan import drop_if_empty, plan_checkpoints
from emberflow._driver.cluster_facts import ClusterFacts
from emberflow._driver.console import Console, warn_driver_unreachable
from emberflow._driver.hub import Hub
from emberflow._driver.job import Job
from emberflow._driver.profiles import common_profile
from emberflow._driver.row_routing import RunData
from emberflow._driver.session_state import how_ended
from emberflow._driver.shipping import Shipment, ship_artifact
from emberflow._driver.slots import wait_for_slots
from emberflow._driver.spark_errors import session_stopped
from emberflow._driver.value_server import ValueServer, collect_values, drop_stored
from emberflow._driver.yarn import add_application
from emberflow._plan.plan import RunPlan
from emberflow._record.events import AttemptFailed, AttemptStarted
from emberflow._record.recorder import Recorder
from emberflow._task.metric_log import MetricLog
from emberflow._task.row_writer import DataSpec
from emberflow._task.task_spec import TaskSpec
from emberflow._task.value_client import ValuePlan
from emberflow._task.warm_start import WarmAccess
from emberflow.config import RunConfig
from emberflow.errors import EmberflowError, FailureCause, NodeFailedError, NodeLostError
from emberflow.result import Metric

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("emberflow")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """What every attempt runs.

    Attributes:
        fn: Your function, pickled.
        artifact: The name of the Spark file with it, where tasks cannot fetch it from the driver.
        least_value: Bytes that the chief's value has at least, as far as that is known.
        data: Its rows and files.
        spec: The same, as tasks receive it.
        warm: Processes from which its nodes are forked, where an idle cluster has them.
        preload: Packages that nodes import while their rows arrive.
    """

    fn: Shipment
    artifact: str = ""
    least_value: int = 0
    data: RunData
    spec: DataSpec
    warm: WarmAccess | None = None
    preload: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Supervised:
    """What the last attempt returned: rows, and files with the pickled values that are not in the rows."""

    rows: list[Any]
    values: dict[int, IO[bytes]]
    attempt: Attempt
    attempts: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttemptParts:
    """What an attempt is made of.

    Attributes:
        plan: Its plan, with the driver's address.
        key: Its secret.
        hub: Its connections to the tasks.
        job: Its Spark job.
        console: Where it shows what happens.
        metrics: What nodes have reported, in earlier attempts too.
        on_quit: Called when the tasks are told to end.
        recorder: Where it records what happens.
    """

    plan: RunPlan
    key: bytes = dataclasses.field(repr=False)
    hub: Hub
    job: Job
    console: Console
    metrics: MetricLog[Metric]
    on_quit: Callable[[], None]
    recorder: Recorder = dataclasses.field(default_factory=Recorder, repr=False)


def make_attempt(parts: AttemptParts) -> Attempt:
    """Return an attempt that is over when the Spark job is."""
    return Attempt(
        parts.plan, parts.hub, parts.job, parts.console, parts.metrics, parts.on_quit, parts.recorder
    )


def supervise(
    spark: "SparkSession",
    program: Program,
    plan: RunPlan,
    config: RunConfig,
    facts: ClusterFacts,
    console: Console,
    make: Callable[[AttemptParts], Attempt] = make_attempt,
    recorder: Recorder | None = None,
) -> Supervised:
    """Run attempts until one succeeds, or no further one is allowed."""
    restarts = 0
    recorder = recorder or Recorder()
    metrics: MetricLog[Metric] = MetricLog()
    while True:
        try:
            rows, values, attempt = _run_attempt(
                spark, program, plan, config, facts, console, metrics, make, recorder
            )
            return Supervised(rows=rows, values=values, attempt=attempt, attempts=restarts + 1)
        except EmberflowError as error:
            if other := _other_way(error, spark, program, plan, config, facts):
                program, plan = other
                continue
            if isinstance(error, NodeLostError) and not facts.is_connect and (ended := how_ended(spark)):
                stopped = session_stopped(ended)
                add_application(stopped, spark, facts)
                raise stopped from error
            if restarts >= config.max_restarts or not _may_restart(error, config):
                add_application(error, spark, facts)
                raise
            restarts += 1
            _record_restart(recorder, plan, error)
            plan = dataclasses.replace(plan, attempt=plan.attempt + 1)
            first_line = str(error).partition("\n")[0]
            which = f"restart {restarts} of {config.max_restarts}"
            log.warning("%s. Starting all nodes again: %s.", first_line.rstrip("."), which)
            console.status(f"{which}: waiting for executors")
            # Under dynamic allocation executors come when tasks wait for them, and the start's deadline holds.
            is_counted = not facts.is_connect and plan.launch == "barrier"
            if is_counted and not _has_slots(spark, plan, config, facts, recorder):
                raise


def _record_restart(recorder: Recorder, plan: RunPlan, error: EmberflowError) -> None:
    """Note why all nodes start again."""
    problem, rank = str(error).partition("\n")[0], getattr(error, "rank", -1)
    recorder.emit(AttemptFailed, attempt=plan.attempt, problem=problem, rank=rank, is_restarted=True)


def _other_way(
    error: EmberflowError,
    spark: "SparkSession",
    program: Program,
    plan: RunPlan,
    config: RunConfig,
    facts: ClusterFacts,
) -> tuple[Program, RunPlan] | None:
    """Return how to start the same attempt in another way, where this one cannot succeed here."""
    if error.cause is FailureCause.BARRIER_REFUSED and plan.launch == "barrier":
        without = dataclasses.replace(plan, launch="independent", launch_reason=REASON, rendezvous="driver")
        return program, without
    if error.cause is FailureCause.DRIVER_UNREACHABLE and _may_do_without_driver(plan):
        warn_driver_unreachable(config.driver_host or facts.driver_host)
        return program, dataclasses.replace(plan, rendezvous="barrier")
    is_not_fetched = error.cause is FailureCause.FUNCTION_NOT_FETCHED
    if is_not_fetched and facts.is_connect and not program.artifact:
        return dataclasses.replace(program, artifact=ship_artifact(spark, program.fn)), plan
    return None


def _may_do_without_driver(plan: RunPlan) -> bool:
    """Tell whether nodes can meet by Spark's barrier instead of at the driver."""
    is_barrier = plan.launch == "barrier" and plan.rendezvous == "driver"
    return is_barrier and len(plan.stages) == 1 and not plan.is_live


def _has_slots(
    spark: "SparkSession", plan: RunPlan, config: RunConfig, facts: ClusterFacts, recorder: Recorder
) -> bool:
    """Wait until Spark has replaced lost executors, which takes as long as a start; tell whether it has."""
    timeout, nodes = config.start_timeout, len(plan.nodes)
    profile = common_profile(facts)
    slots = wait_for_slots(spark, profile, nodes, timeout, settle=timeout, recorder=recorder)
    if slots < nodes:
        log.warning("Spark has %d of %d slots after %g s: the run is over.", slots, nodes, timeout)
    return slots >= nodes


def _run_attempt(
    spark: "SparkSession",
    program: Program,
    plan: RunPlan,
    config: RunConfig,
    facts: ClusterFacts,
    console: Console,
    metrics: MetricLog[Metric],
    make: Callable[[AttemptParts], Attempt],
    recorder: Recorder,
) -> tuple[list[Any], dict[int, IO[bytes]], Attempt]:
    """Start all nodes once, with a key of their own."""
    key = secrets.token_bytes(32)
    recorder.emit(AttemptStarted, attempt=plan.attempt)
    with ExitStack() as held:
        hub = held.enter_context(closing(Hub(facts.bind_host, key, len(plan.nodes), plan.port_range)))
        server = ValueServer(timeout=plan.exchange_timeout, shipment=program.fn, events=hub.events)
        held.callback(server.close)
        hub.on_values = server.admit
        addressed = _with_address(plan, config, facts, hub.port)
        spec = _task_spec(program, addressed, key, facts)
        job = Job(spark, spec, program.data, facts, hub.events)
        attempt = make(
            AttemptParts(
                plan=addressed,
                key=key,
                hub=hub,
                job=job,
                console=console,
                metrics=metrics,
                on_quit=server.close,
                recorder=recorder,
            )
        )
        try:
            rows = attempt.run()
            values = collect_values(rows, server, addressed, key)
        except BaseException:
            if not attempt.has_chief_joined:
                drop_stored(addressed)
            raise
        if addressed.checkpoints:
            with suppress(EmberflowError):
                drop_if_empty(addressed.checkpoints)
        return rows, values, attempt


def _with_address(plan: RunPlan, config: RunConfig, facts: ClusterFacts, port: int) -> RunPlan:
    """Return the plan with this attempt's address, and what it may start from."""
    host = config.driver_host or facts.driver_host or "127.0.0.1"
    address = None if _is_driver_unreachable(plan, facts) else (host, port)
    checkpoints = plan_checkpoints(config.checkpoint_dir, plan.run_id) if config.checkpoint_dir else None
    return dataclasses.replace(plan, driver_address=address, checkpoints=checkpoints)


def _task_spec(program: Program, plan: RunPlan, key: bytes, facts: ClusterFacts) -> TaskSpec:
    """Return what each task receives. Where the driver cannot be reached, Spark must carry the whole function."""
    fn = program.fn.read() if _is_driver_unreachable(plan, facts) else program.fn.data
    values = ValuePlan(
        function_bytes=0 if fn else program.fn.size,
        artifact=program.artifact,
        least_bytes=program.least_value,
        row_limit=facts.result_limit,
    )
    return TaskSpec(
        plan=plan,
        key=key,
        fn=fn,
        data=program.spec,
        values=values,
        warm=program.warm,
        storage=facts.storage,
    )


def _is_driver_unreachable(plan: RunPlan, facts: ClusterFacts) -> bool:
    return plan.rendezvous == "barrier" and not facts.is_connect


def _may_restart(error: EmberflowError, config: RunConfig) -> bool:
    """A lost node is a reason to start again, and so is unreachable storage; your own exception only if requested."""
    if isinstance(error, NodeLostError):
        return True
    if isinstance(error, NodeFailedError):
        return config.restart_on_error or error.is_collateral
    return error.is_transient
