"""What each task of a stage holds: a ResourceProfile for its tasks, or also for executors that are to come."""

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from emberflow._driver.cluster_facts import ClusterFacts
from emberflow._plan.stages import Stage
from emberflow.config import RunConfig
from emberflow.errors import ClusterError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """What makes two profiles the same."""

    application: str
    cpus: int
    resource: str
    gpus: int
    per_executor: int = 0
    script: str = ""
    vendor: str = ""


class ProfileCache:
    """The profiles of the running application.

    Spark keeps every profile for ever, and warns of each new one whose tasks do not ask for the executors' GPUs.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._built: dict[_Wanted, Any] = {}

    def get(self, wanted: _Wanted) -> Any:
        """Return the profile, built when it is first wanted."""
        with self._lock:
            if wanted not in self._built:
                # One application at a time has a JVM here: the profiles of another went with it.
                self._built = {
                    other: profile
                    for other, profile in self._built.items()
                    if other.application == wanted.application
                }
                self._built[wanted] = _build(wanted)
            return self._built[wanted]


_PROFILES = ProfileCache()  # one for the process, as is Spark's own list of profiles


def profile_of(stage: Stage, facts: ClusterFacts) -> Any:
    """Return the profile of a stage's tasks, or None where the session's own settings do.

    A task-only profile needs no new executors. Nodes without GPUs need one too where the session gives every task a
    GPU: they would hold it unused. Under dynamic allocation each profile gets executors of its own, which have GPUs
    only if the profile says so.
    """
    if uses_default_profile(stage, facts):
        return None
    allocation = facts.allocation if stage.gpus else None
    wanted = _Wanted(
        application=facts.application,
        cpus=facts.cpus_per_task or 1,
        resource=facts.gpu_resource,
        gpus=stage.gpus,
        per_executor=facts.gpus_per_executor if allocation else 0,
        script=allocation.gpu_script if allocation else "",
        vendor=allocation.gpu_vendor if allocation else "",
    )
    if not facts.application:  # on Spark Connect a profile is a number on the server, and made for each use
        return _build(wanted)
    return _PROFILES.get(wanted)


def uses_default_profile(stage: Stage, facts: ClusterFacts) -> bool:
    """Tell whether the session's own settings give each task what it needs, and no more."""
    if facts.allocation is not None:
        return stage.gpus == facts.gpus_per_task
    return not stage.gpus and not facts.gpus_per_task


def _build(wanted: "_Wanted") -> Any:
    from pyspark.resource import ExecutorResourceRequests, ResourceProfileBuilder, TaskResourceRequests

    requests = TaskResourceRequests().cpus(wanted.cpus)
    if wanted.gpus:
        requests = requests.resource(wanted.resource, wanted.gpus)
    builder = ResourceProfileBuilder().require(requests)
    if wanted.per_executor:
        builder.require(
            ExecutorResourceRequests().resource(
                wanted.resource, wanted.per_executor, wanted.script, wanted.vendor
            )
        )
    return builder.build


def common_profile(facts: ClusterFacts) -> Any:
    """Return the profile by which to count slots for all nodes: a worker with GPUs takes a CPU slot as well."""
    return profile_of(Stage(first_rank=0, ranks=1, gpus=0), facts)


def count_slots(spark: "SparkSession", profile: Any = None) -> int:
    """Return how many tasks Spark can run at once, by the same sum as its own barrier check."""
    scala_context = spark.sparkContext._jsc.sc()  # noqa: SLF001 - PySpark has no public function
    manager = scala_context.resourceProfileManager()
    if profile is None:
        return int(scala_context.maxNumConcurrentTasks(manager.defaultResourceProfile()))
    java_profile = profile._java_resource_profile  # noqa: SLF001
    manager.addResourceProfile(java_profile)
    return int(scala_context.maxNumConcurrentTasks(java_profile))


def check_gpus(config: RunConfig, facts: ClusterFacts) -> None:
    """Refuse GPUs that Spark cannot give: the stage would wait for ever."""
    if not config.gpus:
        return
    if config.gpu_source == "nvml":
        if facts.gpus_per_executor:
            raise ClusterError(
                "Spark manages the GPUs of this session, and would give those that nodes pick to others as well. "
                f'Received: gpu_source="nvml", {_amount(facts)}={facts.gpus_per_executor}.',
                fix="Leave out gpu_source.",
            )
        return
    if not facts.gpus_per_executor:
        raise ClusterError(
            f"Spark manages no GPUs in this session. Received: gpus={config.gpus}, but no {_amount(facts)}.",
            fix=f"Start the session with {_amount(facts)} and a discovery script, pass gpus=0, name Spark's own "
            'resource with gpu_resource="...", or let nodes pick free GPUs themselves with gpu_source="nvml".',
        )
    if config.gpus > facts.gpus_per_executor:
        raise ClusterError(
            f"A worker's GPUs must be on one executor. Received: gpus={config.gpus}, but each executor has "
            f"{facts.gpus_per_executor} ({_amount(facts)}).",
            fix=f"Pass gpus={facts.gpus_per_executor} or fewer, or give executors more GPUs.",
        )


def _amount(facts: ClusterFacts) -> str:
    return f"spark.executor.resource.{facts.gpu_resource}.amount"
