"""The GPUs of a node that a program starts by `TFSparkNode.run` itself; those of `TFCluster` are Emberflow's."""

import os
from collections.abc import Mapping
from typing import Any

from tensorflowonspark import gpu_info
from tensorflowonspark.old_errors import GpuError

Place = tuple[Mapping[str, list[str]], str, int]  # the cluster spec, job name and task index


def wanted_gpus(tf_args: Any) -> int | None:
    """Return `num_gpus` of the arguments, a namespace or a dict; None where there is none."""
    if isinstance(tf_args, Mapping):
        found = tf_args.get("num_gpus")
    else:
        found = None if isinstance(tf_args, list) else getattr(tf_args, "num_gpus", None)
    return None if found is None else int(found)


def set_visible_gpus(tf_args: Any, has_resources: bool, place: Place | None = None) -> None:
    """Set CUDA_VISIBLE_DEVICES: Spark's GPUs for the task, else free ones of the machine, one if nothing is said.

    Args:
        tf_args: For `num_gpus`.
        has_resources: Whether this Spark assigns GPUs to tasks.
        place: Where this node is in its cluster.

    Raises:
        GpuError: There are fewer than the arguments want.
    """
    wanted = wanted_gpus(tf_args)
    gpus = _of_spark() if has_resources else []
    if wanted is not None:
        gpus = gpus[:wanted]
    is_pod = "SPARK_EXECUTOR_POD_IP" in os.environ  # nvidia-smi lists all GPUs of the host there
    free = 1 if wanted is None else wanted
    if not gpus and free and not is_pod and gpu_info.is_gpu_available():
        gpus = gpu_info.get_gpus(free, _index(place), format=gpu_info.AS_LIST)
    if wanted is not None and len(gpus) < wanted:
        raise GpuError(
            f"Unable to allocate {wanted} GPU(s) from available GPUs: {gpus}. Received: num_gpus={wanted}.",
            fix="Let Spark assign GPUs (spark.task.resource.gpu.amount), or ask for fewer.",
        )
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)


def _of_spark() -> list[str]:
    from pyspark import TaskContext

    if TaskContext.get() is None:  # to make one would have PySpark take this process for a task for ever
        return []
    resources = TaskContext().resources()
    return list(resources["gpu"].addresses) if resources and "gpu" in resources else []


def _index(place: Place | None) -> int:
    """Return the number of this node among those of its host."""
    if place is None:
        return 0
    spec, job, index = place
    mine = spec[job][index]
    host = mine.rpartition(":")[0]
    here = [each for addresses in spec.values() for each in addresses if each.rpartition(":")[0] == host]
    return here.index(mine)
