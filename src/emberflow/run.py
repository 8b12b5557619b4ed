"""`ef.run`: one function on all nodes of a cluster that lives as long as the function runs."""

import dataclasses
import logging
import pickle
import secrets
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from emberflow.config import Count, RunConfig
from emberflow.result import Report, Result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from emberflow._node.context import Context
    from emberflow._plan.plan import RunPlan
    from emberflow._spark.facts import ClusterFacts

log = logging.getLogger("emberflow")


def run(
    fn: "Callable[[Context], Any]",
    *,
    workers: Count,
    spark: "SparkSession | None" = None,
    start_timeout: float = 120.0,
    verbose: bool = True,
    allow_unencrypted: bool = False,
    driver_host: str | None = None,
) -> Result:
    """Run a TensorFlow program on Spark's executors: one process per worker, all started together.

    Args:
        fn: Your function, called as ``fn(ctx)`` in every node.
        workers: How many nodes train, the chief included; "auto" takes every slot Spark offers.
        spark: The session; the active one if left out. Classic or Spark Connect.
        start_timeout: Seconds until every node must have joined the others.
        verbose: Show the nodes' output and progress here while they run.
        allow_unencrypted: Go on although the session asks for encryption, which TensorFlow's traffic lacks.
        driver_host: The address executors dial to reach this process, if Spark's own does not do.

    Returns:
        The chief's value, one report per node, and what nodes reported on the way.

    Raises:
        ConfigError: The arguments are wrong, or the function cannot be pickled.
        ClusterError: Spark cannot seat the nodes, or they did not come up in time.
        NodeFailedError: Your function raised on a node; its own traceback is in the message.
        NodeLostError: A node was killed or crashed.
        RunCancelledError: Somebody cancelled the Spark job.

    Example:
        >>> def whoami(ctx):
        ...     return f"{ctx.role} of {ctx.workers}"
        >>> ef.run(whoami, workers=2).value  # doctest: +SKIP
        'chief of 2'
    """
    from emberflow._spark.facts import check_facts, is_connect, read_facts
    from emberflow._spark.shipping import ship

    config = RunConfig(
        workers=workers,
        start_timeout=start_timeout,
        verbose=verbose,
        allow_unencrypted=allow_unencrypted,
        driver_host=driver_host,
    )
    session = spark or _active_session()
    payload = ship(fn, is_connect=is_connect(session))
    facts = read_facts(session)
    check_facts(facts, config.allow_unencrypted)
    return _run(session, payload, config, facts)


def _run(spark: "SparkSession", fn: bytes, config: RunConfig, facts: "ClusterFacts") -> Result:
    from emberflow._plan.roles import assign_roles
    from emberflow._spark.console import Console

    started = time.monotonic()
    workers, slots = _seats_for(spark, config, facts)
    nodes = assign_roles(workers)
    plan = _first_plan(config, facts, nodes)
    log.debug("plan: %s", plan)
    with Console(nodes, config.verbose) as console, _seated(spark, len(nodes), slots, console.status):
        rows, metrics, plan = _attempt(spark, fn, plan, facts, console)
    values = _values(rows)
    return Result(
        value=values.get(0),
        reports=_reports(rows, values),
        metrics=tuple(metrics),
        seconds=time.monotonic() - started,
    )


def _attempt(spark: Any, fn: bytes, plan: "RunPlan", facts: "ClusterFacts", console: Any) -> Any:
    """Try once; where executors cannot dial the driver, once more with a meeting that needs no dialling."""
    from emberflow._spark.attempt import Attempt
    from emberflow._spark.hub import Hub
    from emberflow._spark.job import Job
    from emberflow._spark.task import TaskSpec
    from emberflow.errors import NodeLostError

    key = secrets.token_bytes(32)
    hub: Hub = Hub(facts.bind_host, key, len(plan.nodes))
    try:
        host = plan.driver_address[0] if plan.driver_address else ""
        placed = dataclasses.replace(plan, driver_address=(host, hub.port))
        job = Job(spark, TaskSpec(plan=placed, key=key, fn=fn), hub.events)
        attempt = Attempt(placed, hub, job, console)
        return attempt.supervise(), attempt.metrics, placed
    except NodeLostError as error:
        if plan.meeting != "driver" or "could not reach the driver" not in error.problem:
            raise
        log.warning("Executors cannot reach the driver at %s; nodes meet by Spark's barrier instead.", host)
    finally:
        hub.close()
    return _attempt(spark, fn, dataclasses.replace(plan, meeting="barrier"), facts, console)


def _seats_for(spark: "SparkSession", config: RunConfig, facts: "ClusterFacts") -> tuple[int, int | None]:
    """Return how many workers to start and how many slots there are, if that can be known."""
    from emberflow._spark.facts import check_slots, wait_for_slots
    from emberflow.errors import ConfigError

    if facts.is_connect:
        if config.workers == "auto":
            raise ConfigError(
                'On Spark Connect the number of slots cannot be read. Received: workers="auto".',
                fix="Pass the number of workers.",
            )
        return config.workers, None
    wanted = None if config.workers == "auto" else config.workers
    slots = wait_for_slots(spark, wanted, config.start_timeout)
    workers = wanted or slots
    check_slots(slots, max(workers, 1), facts.master)
    return workers, slots


def _seated(
    spark: "SparkSession", nodes: int, slots: int | None, say: Callable[[str], None]
) -> AbstractContextManager[None]:
    from emberflow._spark.seats import seats

    if slots is None:
        return nullcontext()
    return seats(spark.sparkContext.applicationId, nodes, slots, say)


def _first_plan(config: RunConfig, facts: "ClusterFacts", nodes: Any) -> "RunPlan":
    from emberflow._plan.plan import RunPlan

    host = config.driver_host or facts.driver_host or "127.0.0.1"
    return RunPlan(
        run_id=secrets.token_hex(4),
        nodes=nodes,
        meeting="barrier" if facts.is_connect else "driver",
        driver_address=(host, 0),
        start_timeout=config.start_timeout,
        forward_logs=config.verbose,
        python=sys.version_info[:2],
    )


def _values(rows: list[Any]) -> dict[int, Any]:
    """Return each rank's value, its chunks put together."""
    chunks: dict[int, list[bytes]] = {}
    for row in sorted(rows, key=lambda row: (row["rank"], row["part"])):
        chunks.setdefault(row["rank"], []).append(bytes(row["value"]))
    joined = {rank: b"".join(parts) for rank, parts in chunks.items()}
    return {rank: pickle.loads(data) for rank, data in joined.items() if data}


def _reports(rows: list[Any], values: dict[int, Any]) -> tuple[Report, ...]:
    from emberflow._node.outcome import Outcome

    outcomes = [Outcome.from_json(row["outcome"]) for row in rows if row["part"] == 0]
    return tuple(
        Report(
            rank=outcome.rank,
            role=outcome.role,
            index=outcome.index,
            host=outcome.host,
            devices=outcome.devices,
            seconds=outcome.seconds,
            log_tail=outcome.log_tail,
            value=values.get(outcome.rank),
        )
        for outcome in sorted(outcomes, key=lambda outcome: outcome.rank)
    )


def _active_session() -> "SparkSession":
    from pyspark.sql import SparkSession

    from emberflow.errors import ConfigError

    session = SparkSession.getActiveSession()
    if session is None:
        raise ConfigError(
            "A Spark session must be active. Received: spark=None, and none is active.",
            fix="Pass spark=SparkSession.builder.getOrCreate().",
        )
    return session
