"""Spark's `BarrierTaskContext` in a node: the program runs in a process of its own, not in Spark's Python worker."""

from typing import TYPE_CHECKING, Any

from pyspark import BarrierTaskContext, BarrierTaskInfo, TaskContext
from pyspark.resource import ResourceInformation

if TYPE_CHECKING:
    from collections.abc import Sequence


class NodeBarrierContext(BarrierTaskContext):
    """What `BarrierTaskContext.get` returns in a node: a task is a node, and a partition is a rank.

    Args:
        ctx: The node's own context.
        addresses: ``host:port`` of each node, in rank order.
        resource: Spark's name for GPUs.
    """

    def __new__(cls, *_: Any) -> "NodeBarrierContext":  # noqa: D102 - Spark's own returns the one that is there
        return object.__new__(cls)

    def __init__(self, ctx: Any, addresses: "Sequence[str]", resource: str) -> None:
        super().__init__()
        self._ctx = ctx
        self._infos = [BarrierTaskInfo(address) for address in addresses]
        self._partitionId = ctx.rank
        self._taskAttemptId = ctx.rank
        self._attemptNumber = ctx.attempt
        self._stageId = 0
        self._cpus = 1
        self._localProperties = {}
        self._resources = {resource: ResourceInformation(resource, list(ctx.devices))} if ctx.devices else {}

    def barrier(self) -> None:
        """Wait until all nodes have called it."""
        self._ctx.all_gather()

    def allGather(self, message: str = "") -> list[str]:  # noqa: N802 - Spark's name
        """Return what each node passed, in the order of the partitions."""
        if not isinstance(message, str):
            raise TypeError("Argument `message` must be of type `str`")
        texts: list[str] = self._ctx.all_gather(message)
        return texts

    def getTaskInfos(self) -> list[BarrierTaskInfo]:  # noqa: N802 - Spark's name
        """Return the address of each node, in the order of the partitions."""
        return self._infos


def install(context: NodeBarrierContext) -> None:
    """Let `BarrierTaskContext.get` and `TaskContext.get` return this context, for the rest of the process."""
    TaskContext._taskContext = context  # noqa: SLF001 - a Spark task does the same
