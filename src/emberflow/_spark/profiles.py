"""What each task of a stage holds: a ResourceProfile for its tasks, on the executors that are there."""

from typing import Any

from emberflow._plan.stages import Stage
from emberflow._spark.facts import ClusterFacts
from emberflow.config import RunConfig
from emberflow.errors import ClusterError


def profile_of(stage: Stage, facts: ClusterFacts) -> Any:
    """Return the profile of a stage's tasks, or None where the session's own settings do.

    A task-only profile needs no dynamic allocation and no new executors. Nodes without GPUs need one too where
    the session gives every task a GPU: they would hold it for nothing.
    """
    if not stage.gpus and not facts.gpus_per_task:
        return None
    from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

    requests = TaskResourceRequests().cpus(facts.cpus_per_task or 1)
    if stage.gpus:
        requests = requests.resource("gpu", stage.gpus)
    return ResourceProfileBuilder().require(requests).build


def profile_for_everybody(facts: ClusterFacts) -> Any:
    """Return the profile by which to count slots for all nodes: a worker with GPUs takes a CPU slot as well."""
    return profile_of(Stage(first_rank=0, ranks=1, gpus=0), facts)


def check_gpus(config: RunConfig, facts: ClusterFacts) -> None:
    """Refuse GPUs that Spark cannot give: the stage would wait for ever."""
    if not config.gpus:
        return
    if config.gpu_source == "nvml":
        if facts.gpus_per_executor:
            raise ClusterError(
                "Spark manages the GPUs of this session, and would give those that nodes pick to others as well. "
                f'Received: gpu_source="nvml", spark.executor.resource.gpu.amount={facts.gpus_per_executor}.',
                fix="Leave out gpu_source.",
            )
        return
    if not facts.gpus_per_executor:
        raise ClusterError(
            f"Spark manages no GPUs in this session. Received: gpus={config.gpus}.",
            fix="Start the session with spark.executor.resource.gpu.amount and a discovery script, pass gpus=0, "
            'or let nodes pick free GPUs themselves with gpu_source="nvml".',
        )
    if config.gpus > facts.gpus_per_executor:
        raise ClusterError(
            f"A worker's GPUs must be on one executor. Received: gpus={config.gpus}, but each executor has "
            f"{facts.gpus_per_executor} (spark.executor.resource.gpu.amount).",
            fix=f"Pass gpus={facts.gpus_per_executor} or fewer, or give executors more GPUs.",
        )
