"""What runs inside each task of `ef.run_parallel`: one node without others."""

import dataclasses
from collections.abc import Iterator
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Any

from emberflow._plan.roles import Node
from emberflow._task.node_task import TaskSpec, _rows, _run_node
from emberflow._task.value_client import ValueClient

if TYPE_CHECKING:
    import pyarrow as pa

PARALLEL_SCHEMA = "task long, part long, outcome string, value binary"


class SingleTaskContext:
    """A task's context whose barrier is always complete, since there is no other task to wait for."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def resources(self) -> Any:
        """Return what Spark gave to this task."""
        return self._context.resources()

    def allGather(self, message: str) -> list[str]:  # noqa: N802 - Spark's name
        """Return the messages of all tasks: this one's."""
        return [message]


def run_parallel_task(orders: TaskSpec, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """Run one node; yield how it ended, and its value in chunks. A failure is an outcome, not an error here."""
    import pyarrow as pa
    from pyspark import TaskContext

    for _ in batches:  # the single row for which Spark started this task
        pass
    context: Any = TaskContext.get()
    number = context.partitionId()
    me = Node(rank=0, role="chief", index=number)
    spec = dataclasses.replace(orders, plan=dataclasses.replace(orders.plan, nodes=(me,)))
    values = ValueClient(spec.values, spec.plan, spec.key, number, is_late=True)
    here: Any = SingleTaskContext(context)
    with closing(values):
        outcome, value = _run_node(spec, me, _own_host(), None, here, iter(()), values)
    with value or nullcontext():
        for batch in _rows(outcome, value):
            columns = [pa.array([number] * batch.num_rows), *batch.columns[1:]]
            yield pa.RecordBatch.from_arrays(columns, names=["task", "part", "outcome", "value"])


def _own_host() -> str:
    import os
    import socket

    return os.environ.get("SPARK_LOCAL_IP") or socket.gethostname()
