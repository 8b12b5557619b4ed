"""What runs inside each task of `ef.run_parallel`: one node that meets nobody."""

import dataclasses
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from emberflow._plan.plan import RunPlan
from emberflow._plan.roles import Node
from emberflow._spark.task import TaskSpec, _rows, _run_node

if TYPE_CHECKING:
    import pyarrow as pa

ALONE_SCHEMA = "task long, part long, outcome string, value binary"


class Alone:
    """A task's context whose barrier is always complete, since there is nobody to wait for."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def resources(self) -> Any:
        """Return what Spark gave to this task."""
        return self._context.resources()

    def allGather(self, message: str) -> list[str]:  # noqa: N802 - Spark's name
        """Return everybody's message: our own."""
        return [message]


def alone_task(plan: RunPlan, fn: bytes, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """Run one node; yield how it ended, and its value in chunks. A failure is told, not raised: others go on."""
    import pyarrow as pa
    from pyspark import TaskContext

    for _ in batches:  # the single row that gave us this task
        pass
    context: Any = TaskContext.get()
    number = context.partitionId()
    me = Node(rank=0, role="chief", index=number)
    spec = TaskSpec(plan=dataclasses.replace(plan, nodes=(me,)), key=secrets.token_bytes(32), fn=fn)
    outcome, value = _run_node(spec, me, _own_host(), None, Alone(context), iter(()))  # type: ignore[arg-type]
    for batch in _rows(outcome, value):
        columns = [pa.array([number] * batch.num_rows), *batch.columns[1:]]
        yield pa.RecordBatch.from_arrays(columns, names=["task", "part", "outcome", "value"])


def _own_host() -> str:
    import os
    import socket

    return os.environ.get("SPARK_LOCAL_IP") or socket.gethostname()
