"""What each task of a stage holds: a ResourceProfile for its tasks, on the executors that are there."""

import threading
from dataclasses import dataclass
from typing import Any

from emberflow._driver.cluster_facts import ClusterFacts
from emberflow._plan.stages import Stage
from emberflow.config import RunConfig
from emberflow.errors import ClusterError


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """What makes two profiles the same."""

    application: str
    cpus: int
    resource: str
    gpus: int


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

    A task-only profile needs no dynamic allocation and no new executors. Nodes without GPUs need one too where
    the session gives every task a GPU: they would hold it unused.
    """
    if not stage.gpus and not facts.gpus_per_task:
        return None
    wanted = _Wanted(
        application=facts.application,
        cpus=facts.cpus_per_task or 1,
        resource=facts.gpu_resource,
        gpus=stage.gpus,
    )
    if not facts.application:  # on Spark Connect a profile is a number on the server, and made for each use
        return _build(wanted)
    return _PROFILES.get(wanted)


def _build(wanted: "_Wanted") -> Any:
    from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

    requests = TaskResourceRequests().cpus(wanted.cpus)
    if wanted.gpus:
        requests = requests.resource(wanted.resource, wanted.gpus)
    return ResourceProfileBuilder().require(requests).build


def common_profile(facts: ClusterFacts) -> Any:
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
