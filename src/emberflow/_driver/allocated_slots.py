"""Which nodes get a slot under dynamic allocation, where executors come only when tasks wait for them."""

from typing import TYPE_CHECKING

from emberflow._driver.allocation import MOST_EXECUTORS, RATIO, Allocation
from emberflow._driver.cluster_facts import ClusterFacts
from emberflow._driver.profiles import count_slots, uses_default_profile
from emberflow._plan.roles import Node, assign_roles
from emberflow._plan.stages import Stage, stages_of
from emberflow.config import RunConfig
from emberflow.errors import ClusterError, ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def place_for_allocation(
    spark: "SparkSession",
    config: RunConfig,
    facts: ClusterFacts,
    allocation: Allocation,
    ps: int,
    *,
    is_live: bool,
) -> tuple[Node, ...]:
    """Return the nodes to start; refuse at once those for which executors can never come."""
    feeding = int(is_live)  # a live node holds its slot, and the jobs that feed it need another
    workers = config.workers
    if workers == "auto":
        workers = _most_workers(config, facts, allocation) - ps - config.evaluator - feeding
    nodes = assign_roles(max(workers, 1), ps, config.evaluator)
    for stage in stages_of(nodes, config.gpus if config.gpu_source == "spark" else 0):
        shared = feeding if uses_default_profile(stage, facts) else 0
        _check_most(stage, shared, facts, allocation)
    _check_ratio(spark, len(nodes), facts, allocation)
    return nodes


def _most_workers(config: RunConfig, facts: ClusterFacts, allocation: Allocation) -> int:
    gpus = config.gpus if config.gpu_source == "spark" else 0
    most = allocation.most_slots(facts.cpus_per_task, gpus=gpus, gpus_per_executor=facts.gpus_per_executor)
    if most is None:
        raise ConfigError(
            f'workers="auto" takes every slot that Spark may bring. Received: no {MOST_EXECUTORS} with '
            "spark.executor.cores, so there is no last one.",
            fix=f"Pass workers=4, or start the session with {MOST_EXECUTORS}=4 and spark.executor.cores=1.",
        )
    return most


def _check_most(stage: Stage, feeding: int, facts: ClusterFacts, allocation: Allocation) -> None:
    most = allocation.most_slots(
        facts.cpus_per_task, gpus=stage.gpus, gpus_per_executor=facts.gpus_per_executor
    )
    if most is None or stage.ranks + feeding <= most:
        return
    gpus = f" with {stage.gpus} GPUs each" if stage.gpus else ""
    more = ", and one more for the jobs that feed them: each node holds its slot here" if feeding else ""
    raise ClusterError(
        f"{stage.ranks} nodes need a task slot each at the same time{gpus}{more}. "
        f"Received: at most {most} slots under dynamic allocation ({MOST_EXECUTORS}={allocation.most_executors}, "
        f"spark.executor.cores={allocation.executor_cores}, spark.cores.max={allocation.most_cores}).",
        fix=f"Pass fewer workers, or start the session with a higher {MOST_EXECUTORS} or more spark.executor.cores.",
    )


def _check_ratio(spark: "SparkSession", nodes: int, facts: ClusterFacts, allocation: Allocation) -> None:
    """Refuse a ratio with which Spark would keep some nodes waiting for the end of others."""
    brought = allocation.slots_for(nodes, facts.cpus_per_task)
    if brought < nodes and count_slots(spark) < nodes:
        raise ClusterError(
            f"All {nodes} nodes must run at the same time. Received: {RATIO}={allocation.ratio:g}, with which Spark "
            f"brings executors for {brought} of them.",
            fix=f"Start the session with {RATIO}=1, or with spark.dynamicAllocation.minExecutors for all nodes.",
        )
