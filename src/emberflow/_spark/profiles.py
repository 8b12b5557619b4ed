"""What each task of a stage holds: a ResourceProfile for its tasks, on the executors that are there."""

from typing import Any

from emberflow._plan.stages import Stage
from emberflow._spark.facts import ClusterFacts
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


def check_gpus(gpus: int, facts: ClusterFacts) -> None:
    """Refuse GPUs that Spark cannot give: the stage would wait for ever."""
    if not gpus or facts.is_connect:
        return
    if not facts.gpus_per_executor:
        raise ClusterError(
            f"Spark manages no GPUs in this session. Received: gpus={gpus}.",
            fix="Start the session with spark.executor.resource.gpu.amount and a discovery script, pass gpus=0, "
            'or let nodes pick free GPUs themselves with gpu_source="nvml".',
        )
    if gpus > facts.gpus_per_executor:
        raise ClusterError(
            f"A worker's GPUs must be on one executor. Received: gpus={gpus}, but each executor has "
            f"{facts.gpus_per_executor} (spark.executor.resource.gpu.amount).",
            fix=f"Pass gpus={facts.gpus_per_executor} or fewer, or give executors more GPUs.",
        )
