"""Dynamic allocation: how many executors Spark may still bring, and so how many tasks can run at once."""

import math
from dataclasses import dataclass
from typing import Any

ENABLED = "spark.dynamicAllocation.enabled"
MOST_EXECUTORS = "spark.dynamicAllocation.maxExecutors"
RATIO = "spark.dynamicAllocation.executorAllocationRatio"
REASON = f"{ENABLED}=true, and Spark refuses barriers with it"
UNLIMITED = 2**31 - 1  # Spark's own default


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """What the settings say of the executors that may come; None where they set no limit.

    Attributes:
        most_executors: Spark's spark.dynamicAllocation.maxExecutors, which holds for each resource profile.
        executor_cores: Cores of each executor; None on a standalone cluster where a Worker gives all that it has.
        most_cores: Spark's spark.cores.max.
        ratio: Spark's spark.dynamicAllocation.executorAllocationRatio: below 1 Spark brings executors for that
            share of the waiting tasks only.
        gpu_script: Spark's script that finds the GPUs of an executor.
        gpu_vendor: Their vendor, as Spark's settings name it.
    """

    most_executors: int | None = None
    executor_cores: int | None = None
    most_cores: int | None = None
    ratio: float = 1.0
    gpu_script: str = ""
    gpu_vendor: str = ""

    def most_slots(self, cpus: int, *, gpus: int = 0, gpus_per_executor: int = 0) -> int | None:
        """Return how many tasks of so many CPUs and GPUs can run at once at most; None for any number.

        >>> Allocation(most_executors=3, executor_cores=4).most_slots(cpus=2)
        6
        >>> Allocation(most_executors=3, executor_cores=4).most_slots(cpus=1, gpus=1, gpus_per_executor=2)
        6
        >>> Allocation(most_executors=3, most_cores=5).most_slots(cpus=1)
        5
        """
        limits = [] if self.most_cores is None else [self.most_cores // cpus]
        per_executor = self._per_executor(cpus, gpus, gpus_per_executor)
        if self.most_executors is not None and per_executor is not None:
            limits.append(self.most_executors * per_executor)
        return min(limits, default=None)

    def slots_for(self, tasks: int, cpus: int) -> int:
        """Return how many of these tasks Spark brings executors for at once; `tasks` where it is not known.

        >>> Allocation(executor_cores=1, ratio=0.5).slots_for(4, cpus=1)
        2
        """
        per_executor = self._per_executor(cpus, 0, 0)
        if per_executor is None or self.ratio >= 1.0:
            return tasks
        return min(tasks, math.ceil(tasks * self.ratio / per_executor) * per_executor)

    def _per_executor(self, cpus: int, gpus: int, gpus_per_executor: int) -> int | None:
        limits = [] if self.executor_cores is None else [self.executor_cores // cpus]
        if gpus:
            limits.append(gpus_per_executor // gpus)
        return min(limits, default=None)


def read_allocation(conf: Any, master: str, gpu_resource: str) -> Allocation:
    """Return what the settings of a session with dynamic allocation say.

    Args:
        conf: The settings, with a method `get`.
        master: Spark's master URL.
        gpu_resource: Spark's name for GPUs.
    """
    most, cores, of_all = (
        conf.get(name) for name in (MOST_EXECUTORS, "spark.executor.cores", "spark.cores.max")
    )
    is_standalone = master.startswith(("spark://", "local-cluster["))
    return Allocation(
        most_executors=int(most) if most and int(most) < UNLIMITED else None,
        executor_cores=int(cores) if cores else (None if is_standalone else 1),
        most_cores=int(of_all) if of_all and is_standalone else None,
        ratio=float(conf.get(RATIO) or 1.0),
        gpu_script=conf.get(f"spark.executor.resource.{gpu_resource}.discoveryScript") or "",
        gpu_vendor=conf.get(f"spark.executor.resource.{gpu_resource}.vendor") or "",
    )
