"""The memory of an executor outside of its JVM, where nodes have theirs; YARN and Kubernetes limit it."""

import re
from collections.abc import Callable
from dataclasses import dataclass

MEGABYTES_OF_NODE = 1024  # TensorFlow, a small model and its rows; a large model needs more
_UNITS = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024**2}  # in megabytes
_LEAST_OVERHEAD = 384  # Spark's spark.executor.minMemoryOverhead
_FACTOR = 0.1  # Spark's spark.executor.memoryOverheadFactor; Kubernetes has 0.4 for programs in Python
_KUBERNETES_FACTOR = 0.4


@dataclass(frozen=True, kw_only=True)
class ExecutorMemory:
    """How much memory an executor's container has for what is not in its JVM.

    Attributes:
        overhead: Megabytes outside of the JVM.
        nodes: How many nodes an executor may run at the same time.
        is_set: Whether the settings say so; otherwise Spark derives it from spark.executor.memory.
    """

    overhead: int
    nodes: int
    is_set: bool

    @property
    def needed(self) -> int:
        """Megabytes that the nodes need at least."""
        return self.nodes * MEGABYTES_OF_NODE


def limits_memory(master: str) -> bool:
    """Tell whether executors run in containers that are killed when they use too much memory.

    >>> limits_memory("yarn"), limits_memory("k8s://https://host"), limits_memory("spark://host:7077")
    (True, True, False)
    """
    return master == "yarn" or master.startswith("k8s://")


def executor_memory(setting: Callable[[str, str], str], master: str) -> ExecutorMemory:
    """Read what an executor's container has.

    Args:
        setting: Returns a setting of Spark by its name, or the second argument.
        master: Spark's master URL.

    >>> conf = {"spark.executor.memory": "8g", "spark.executor.cores": "4"}
    >>> executor_memory(lambda name, other: conf.get(name, other), "yarn")
    ExecutorMemory(overhead=819, nodes=4, is_set=False)
    """
    explicit = setting("spark.executor.memoryOverhead", "")
    default = _FACTOR if master == "yarn" else _KUBERNETES_FACTOR
    factor = float(setting("spark.executor.memoryOverheadFactor", str(default)))
    least = megabytes(setting("spark.executor.minMemoryOverhead", f"{_LEAST_OVERHEAD}m"))
    heap = megabytes(setting("spark.executor.memory", "1g"))
    cores, cpus = int(setting("spark.executor.cores", "1")), int(setting("spark.task.cpus", "1"))
    return ExecutorMemory(
        overhead=megabytes(explicit) if explicit else max(int(heap * factor), least),
        nodes=max(cores // cpus, 1),
        is_set=bool(explicit),
    )


def megabytes(text: str) -> int:
    """Return an amount of memory in Spark's notation as megabytes; a plain number is in megabytes.

    >>> megabytes("2g"), megabytes("512m"), megabytes("1024"), megabytes("1.5g")
    (2048, 512, 1024, 0)
    """
    found = re.fullmatch(r"(\d+)\s*([kmgt]?)b?", text.strip().lower())
    return int(int(found[1]) * _UNITS[found[2] or "m"]) if found else 0
