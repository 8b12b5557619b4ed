"""`ef.run_parallel`: independent calls of one function, each in a process of its own."""

import functools
import pickle
import secrets
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from emberflow._names import names_checked
from emberflow.config import START_TIMEOUT, check_count, check_page, check_path, check_seconds
from emberflow.errors import EmberflowError
from emberflow.result import Metric, Report, Result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from emberflow._driver.cluster_facts import ClusterFacts
    from emberflow._driver.value_server import ValueServer
    from emberflow._node.context import Context
    from emberflow._plan.plan import RunPlan
    from emberflow._protocol.outcome import Outcome
    from emberflow._record.recorder import Recorder
    from emberflow._task.task_spec import TaskSpec


@names_checked
def run_parallel(
    fn: "Callable[[Context], Any]",
    *,
    tasks: int,
    gpus: int = 0,
    barrier: bool = False,
    spark: "SparkSession | None" = None,
    start_timeout: float = 120.0,
    record: str | None = None,
    page: bool | int = False,
) -> tuple[Result, ...]:
    """Run a function as several independent tasks, such as the trials of a search or the shards of a job.

    Each task has a process, a folder and GPUs of its own, as a run with one worker has: ``ctx.workers`` is 1,
    ``ctx.rank`` is 0, and ``ctx.index`` is the number of the task. The end of its output is in its report.

    Args:
        fn: Your function, called as ``fn(ctx)``.
        tasks: The number of tasks.
        gpus: GPUs of each task, its own, assigned by Spark's scheduler.
        barrier: Start all tasks at the same time, or none. Otherwise Spark starts as many as it has slots, and the
            others when slots become free; tasks of a lost executor are restarted on another.
        spark: The session; the active one if left out. Classic or Spark Connect.
        start_timeout: Seconds until each process must have loaded your function.
        record: Folder for a record of what happens, on any storage: ``emberflow runs`` shows it. By default Spark's
            setting spark.emberflow.record, or none.
        page: Serve a page of the tasks for a browser while they run: states, curves, output. Its address is printed,
            as that of `ef.run`; a number is the port.

    Returns:
        One result per task, in order.

    Raises:
        ConfigError: The arguments are wrong, or the function cannot be pickled.
        ClusterError: Spark cannot provide the GPUs, or with `barrier` the slots; or the job failed.
        NodeFailedError: Your function raised in a task. The other tasks have run to their end; the results of those
            that completed are in the error's ``results``, in order, with None for the others.
        NodeLostError: A process was killed or crashed. The other tasks as before.

    Example:
        >>> results = ef.run_parallel(lambda ctx: ctx.index ** 2, tasks=4)  # doctest: +SKIP
        >>> [result.value for result in results]  # doctest: +SKIP
        [0, 1, 4, 9]
    """
    from emberflow._driver.cluster_facts import active_session, read_facts
    from emberflow._driver.events import JobRows
    from emberflow._driver.hub import Hub
    from emberflow._driver.interpreter import is_connect
    from emberflow._driver.parallel_record import ParallelRecord
    from emberflow._driver.shipping import Shipment, ship
    from emberflow._driver.value_server import ValueServer
    from emberflow._task.task_spec import TaskSpec
    from emberflow._task.value_client import ValuePlan

    check_count("tasks", tasks)
    check_count("gpus", gpus, least=0)
    check_seconds("start_timeout", start_timeout, START_TIMEOUT)
    check_path("record", record)
    check_page("page", page)
    session = spark or active_session()
    payload = ship(fn, is_connect=is_connect(session))
    facts = read_facts(session)
    started = time.monotonic()
    recording = ParallelRecord(session, fn, tasks=tasks, gpus=gpus, record=record, page=page)
    with recording:
        with ExitStack() as held:
            key = secrets.token_bytes(32)
            hub = Hub(facts.bind_host, key, ranks=tasks, ports=facts.port_range, is_optional=True)
            held.callback(hub.close)
            held.enter_context(recording.following(hub.events))
            plan = _plan(recording.run_id, gpus, start_timeout, facts, hub.port)
            server = ValueServer(timeout=plan.exchange_timeout, shipment=Shipment(size=0), events=hub.events)
            held.callback(server.close)
            hub.on_values = server.admit
            values = ValuePlan(row_limit=facts.result_limit)
            orders = TaskSpec(plan=plan, key=key, fn=payload, values=values, storage=facts.storage)
            rows = _collect(session, orders, facts, recording.recorder, tasks=tasks, barrier=barrier)
            hub.events.put(JobRows(rows))
            results = _results(rows, server, time.monotonic() - started)
        return recording.ended(results)


def _plan(run_id: str, gpus: int, start_timeout: float, facts: "ClusterFacts", port: int) -> "RunPlan":
    from emberflow._plan.plan import RunPlan
    from emberflow._plan.roles import assign_roles

    return RunPlan(
        run_id=run_id,
        nodes=assign_roles(1),
        rendezvous="barrier",
        driver_address=(facts.driver_host or "127.0.0.1", port),
        start_timeout=start_timeout,
        forward_logs=True,
        log_copy="no_noise" if facts.is_local else "all",
        python=sys.version_info[:2],
        gpus=gpus,
        gpu_resource=facts.gpu_resource,
        encrypts_files=facts.encrypts_files,
        paths=facts.paths,
    )


def _collect(
    spark: "SparkSession",
    orders: "TaskSpec",
    facts: "ClusterFacts",
    recorder: "Recorder",
    *,
    tasks: int,
    barrier: bool,
) -> list[Any]:
    """Run one Spark job of that many tasks; cancel it if this call is interrupted."""
    from emberflow._driver.interpreter import collect_in_arrow, is_connect
    from emberflow._driver.profiles import check_gpus, profile_of
    from emberflow._driver.slots import check_all_at_once
    from emberflow._driver.spark_errors import translate
    from emberflow._task.parallel_task import PARALLEL_SCHEMA, run_parallel_task
    from emberflow.config import RunConfig

    plan = orders.plan
    check_gpus(RunConfig(workers=1, gpus=plan.gpus), facts)
    profile = profile_of(plan.stages[0], facts)
    if barrier:
        check_all_at_once(spark, profile, tasks, facts, plan.start_timeout, recorder)
    task = functools.partial(run_parallel_task, orders, tasks)
    rows = spark.range(0, tasks, 1, tasks)
    tag = f"emberflow-{plan.run_id}"
    tagged: Any = spark if is_connect(spark) else spark.sparkContext
    (tagged.addTag if is_connect(spark) else tagged.addJobTag)(tag)
    try:
        return collect_in_arrow(rows, task, PARALLEL_SCHEMA, barrier=barrier, profile=profile)
    except EmberflowError:
        raise
    except Exception as error:
        raise translate(error) from error
    except BaseException:
        (tagged.interruptTag if is_connect(spark) else tagged.cancelJobsWithTag)(tag)
        raise
    finally:
        (tagged.removeTag if is_connect(spark) else tagged.removeJobTag)(tag)


def _results(rows: list[Any], server: "ValueServer", seconds: float) -> tuple[Result, ...]:
    """Return a result per task, or raise the error of the first that failed, with the results of the others."""
    from emberflow._plan.roles import Node
    from emberflow._protocol.outcome import Ending, Outcome

    chunks: dict[int, list[bytes]] = {}
    outcomes: dict[int, Outcome] = {}
    for row in sorted(rows, key=lambda row: (row["task"], row["part"])):
        chunks.setdefault(row["task"], []).append(bytes(row["value"]))
        if row["part"] == 0:
            outcome = Outcome.from_json(row["outcome"])
            if why := server.failures.get(row["task"]):  # the driver knows the cause, the task does not
                outcome = why.outcome(Node(rank=0, role="chief", index=row["task"]), outcome.host)
            outcomes[row["task"]] = outcome
    completed = {
        task: _result(outcome, _value(task, outcome, chunks[task], server), seconds)
        for task, outcome in outcomes.items()
        if outcome.ending is Ending.RETURNED
    }
    failed = [(task, outcome) for task, outcome in outcomes.items() if task not in completed]
    if failed:
        others = tuple(f"task {task} on {other.host}: {other.problem}" for task, other in failed[1:])
        error = failed[0][1].error(others)
        error.results = tuple(completed.get(task) for task in outcomes)
        raise error
    return tuple(completed.values())


def _value(task: int, outcome: "Outcome", chunks: list[bytes], server: "ValueServer") -> Any:
    """Return the value of a task, from rows or from the file that it sent."""
    from emberflow._protocol.outcome import ValueRoute

    if outcome.value_route is ValueRoute.DRIVER:
        with server.take(task) as file:
            return pickle.load(file)
    data = b"".join(chunks)
    return pickle.loads(data) if data else None


def _result(outcome: "Outcome", value: Any, seconds: float) -> Result:
    report = Report(
        rank=outcome.rank,
        role=outcome.role,
        index=outcome.index,
        host=outcome.host,
        devices=outcome.devices,
        seconds=outcome.seconds,
        log_tail=outcome.log_tail,
        value=value,
        gpus=outcome.gpus,
    )
    metrics = tuple(
        Metric(rank=0, step=report.step, values=report.values, seconds=report.seconds)
        for report in outcome.metrics
    )
    return Result(value=value, reports=(report,), metrics=metrics, seconds=seconds)
