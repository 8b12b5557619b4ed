"""How many tasks Spark can run at once, and which nodes get a slot."""

import functools
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from emberflow._driver.allocated_slots import place_for_allocation
from emberflow._driver.cluster_facts import PARAMETER_SERVERS, ClusterFacts
from emberflow._driver.profiles import check_gpus, common_profile, count_slots, profile_of
from emberflow._driver.slot_queue import DRIVER_SLOTS
from emberflow._plan import deadlines
from emberflow._plan.plan import RunPlan
from emberflow._plan.roles import Node, assign_roles
from emberflow._plan.stages import Stage, stages_of
from emberflow._record.events import RunWaits, SlotsHeld
from emberflow._record.recorder import Recorder
from emberflow.config import EXECUTOR_TIMEOUT, RunConfig
from emberflow.errors import ClusterError, ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def place_nodes(
    spark: "SparkSession",
    config: RunConfig,
    facts: ClusterFacts,
    *,
    is_live: bool = False,
    recorder: Recorder | None = None,
) -> tuple[Node, ...]:
    """Return the nodes to start, once Spark has a slot for each; refuse within seconds if it has not.

    Under dynamic allocation, where executors come when tasks wait for them, once it is known that they may come.
    """
    gpus = config.gpus if config.gpu_source == "spark" else 0
    ps = _ps_of(facts) if config.ps == "auto" else config.ps
    if facts.is_connect:
        return _place_without_counting(config, ps)
    check_gpus(config, facts)
    if facts.allocation is not None:
        return place_for_allocation(spark, config, facts, facts.allocation, ps, is_live=is_live)
    wanted = None if config.workers == "auto" else config.workers
    helpers = ps + config.evaluator
    slots = wait_for_slots(
        spark,
        common_profile(facts),
        wanted and wanted + helpers,
        config.start_timeout,
        settle=config.executor_timeout,
        recorder=recorder,
    )
    if wanted is None:
        wanted = slots - helpers
        if gpus:
            trainers = profile_of(Stage(first_rank=0, ranks=1, gpus=gpus), facts)
            wanted = min(wanted, count_slots(spark, trainers))
    check_slots(slots, max(wanted, 1), helpers, facts.master)
    nodes = assign_roles(wanted, ps, config.evaluator)
    for stage in stages_of(nodes, gpus):
        _check_stage(spark, stage, facts)
    return nodes


def slots_offered(spark: "SparkSession", facts: ClusterFacts) -> int | None:
    """Return how many tasks Spark can run at once now; None where that cannot be known."""
    if facts.is_connect or facts.allocation is not None:
        return None
    return count_slots(spark, common_profile(facts))


@contextmanager
def slots_held(
    spark: "SparkSession",
    plan: RunPlan,
    facts: ClusterFacts,
    say: Callable[[str], None],
    recorder: Recorder,
) -> Iterator[None]:
    """Hold the plan's slots and GPUs for the length of the block: runs that share this driver take turns.

    Args:
        spark: The session.
        plan: Whose nodes need them.
        facts: What is known of the cluster.
        say: Told what the run waits for, if it has to wait; its record has it too.
        recorder: That of the run.
    """

    def wait(why: str) -> None:
        say(why)
        recorder.emit(RunWaits, why=why)

    with ExitStack() as held:
        slots = None if facts.is_connect else _slots_to_share(spark, facts)
        if slots is not None:
            application, nodes = spark.sparkContext.applicationId, len(plan.nodes)
            take = functools.partial(
                DRIVER_SLOTS.held, application, say=wait, holder=_name_of(recorder, plan)
            )
            held.enter_context(take(nodes, max(slots, nodes), is_kept=plan.holds_tasks))
            trainers = plan.stages[0]
            if trainers.gpus and facts.allocation is None:
                room = max(count_slots(spark, profile_of(trainers, facts)), trainers.ranks)
                wanted, there = trainers.ranks * trainers.gpus, room * trainers.gpus
                held.enter_context(take(wanted, there, what="GPUs"))
        recorder.emit(SlotsHeld)
        yield


def _name_of(recorder: Recorder, plan: RunPlan) -> str:
    """Return what other runs call this one."""
    started = recorder.state.started
    kind, name = (started.kind, started.name) if started else ("run", "")
    return " ".join(part for part in (kind, name, plan.run_id[:4]) if part)


def _slots_to_share(spark: "SparkSession", facts: ClusterFacts) -> int | None:
    """Return how many slots the runs of this driver share; None for any number."""
    if facts.allocation is not None:
        return facts.allocation.most_slots(facts.cpus_per_task)
    return count_slots(spark, common_profile(facts))


def _ps_of(facts: ClusterFacts) -> int:
    if not facts.parameter_servers.isdecimal():
        raise ClusterError(
            f'ps="auto" reads a whole number. Received: {PARAMETER_SERVERS}={facts.parameter_servers}.',
            fix=f"Start the session with {PARAMETER_SERVERS}=1, or pass ps=1.",
        )
    return int(facts.parameter_servers)


def _place_without_counting(config: RunConfig, ps: int) -> tuple[Node, ...]:
    if config.workers == "auto" or config.ps == "auto":
        raise ConfigError(
            "On Spark Connect neither slots nor settings can be read. "
            f"Received: workers={config.workers!r}, ps={config.ps!r}.",
            fix="Pass both as numbers.",
        )
    nodes = assign_roles(config.workers, ps, config.evaluator)
    if config.gpu_source == "spark" and len(stages_of(nodes, config.gpus)) > 1:
        raise ConfigError(
            "Nodes with and without GPUs start in two stages that exchange addresses at the driver, which executors "
            f"of a Spark Connect server cannot be sure to reach. Received: gpus={config.gpus}, ps={ps}, "
            f"evaluator={config.evaluator}.",
            fix="Use a classic session for this one combination, or leave out gpus, or ps and evaluator.",
        )
    return nodes


def expected_slots(spark: "SparkSession") -> int | None:
    """Return the slots that the settings promise, or None where they do not say.

    Executors register one after another: right after the session's start fewer answer than will come.
    """
    context = spark.sparkContext
    conf = context.getConf()
    cpus = int(conf.get("spark.task.cpus") or 1)
    local_cluster = re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]", str(context.master))
    if local_cluster:
        return int(local_cluster[1]) * (int(local_cluster[2]) // cpus)
    instances, cores = conf.get("spark.executor.instances"), conf.get("spark.executor.cores")
    if str(context.master) == "yarn":  # Spark's defaults there
        instances, cores = instances or "2", cores or "1"
    if instances and cores:
        return int(instances) * (int(cores) // cpus)
    if most := conf.get("spark.cores.max"):
        return int(most) // cpus
    return None


def wait_for_slots(
    spark: "SparkSession",
    profile: Any,
    wanted: int | None,
    timeout: float,
    *,
    settle: float = EXECUTOR_TIMEOUT,
    recorder: Recorder | None = None,
) -> int:
    """Return the number of slots once it is `wanted`, or what there is when no more will come.

    With `wanted` None, waits for as many as the settings promise. A session whose executors are all up answers
    at once; one that is just starting gets until `timeout` for its first executor, and `settle` seconds more
    for the others. What it waits for is in the record.
    """
    goal = wanted or expected_slots(spark) or 1
    deadline = time.monotonic() + timeout
    slots, told = count_slots(spark, profile), -1
    while slots < goal and time.monotonic() < deadline:
        if recorder is not None and slots != told:
            recorder.emit(RunWaits, why=f"waits for {goal} task slots; Spark has {slots}")
            told = slots
        if slots:
            deadline = min(deadline, time.monotonic() + settle)
            settle = float("inf")
        time.sleep(deadlines.SLOT_POLL)
        slots = count_slots(spark, profile)
    return slots


def check_slots(slots: int, workers: int, helpers: int, master: str | None) -> None:
    """Refuse more nodes than there are slots: Spark would wait ten minutes and fail with an opaque error."""
    if slots >= workers + helpers:
        return
    detail = f" for {workers} workers and {helpers} ps or evaluator" if helpers else ""
    fewer = f"Pass workers={slots - helpers} or fewer, or start" if slots > helpers else "Start"
    raise ClusterError(
        f"The run needs {workers + helpers} task slots at the same time{detail}. "
        f"Received: {slots} slots from {master}.",
        fix=f"{fewer} the session with more executors or cores (spark.executor.instances, "
        "spark.executor.cores, spark.cores.max); if executors are still starting, raise executor_timeout."
        if slots
        else "Start executors first: none has registered with the driver.",
    )


def check_all_at_once(
    spark: "SparkSession",
    profile: Any,
    tasks: int,
    facts: ClusterFacts,
    timeout: float,
    recorder: Recorder | None = None,
) -> None:
    """Refuse more tasks of a barrier than there are slots: Spark would ask again for ten minutes."""
    if facts.is_connect or facts.allocation is not None:
        return  # slots cannot be counted there; Spark itself refuses barriers under dynamic allocation
    slots = wait_for_slots(spark, profile, tasks, timeout, recorder=recorder)
    if slots < tasks:
        fewer = f"Pass tasks={slots} or fewer, or barrier=False; or start" if slots else "Start"
        raise ClusterError(
            f"{tasks} tasks need as many task slots at the same time. "
            f"Received: {slots} slots from {facts.master}.",
            fix=f"{fewer} the session with more executors or cores (spark.executor.instances, "
            "spark.executor.cores, spark.cores.max).",
        )


def _check_stage(spark: "SparkSession", stage: Stage, facts: ClusterFacts) -> None:
    slots = count_slots(spark, profile_of(stage, facts))
    if slots < stage.ranks:
        raise ClusterError(
            f"{stage.ranks} nodes need {stage.gpus} GPUs each at the same time. "
            f"Received: room for {slots} such nodes in {facts.master}.",
            fix=f"Pass workers={slots} or fewer, fewer gpus, or start the session with more executors.",
        )
