"""What runs inside each task of `ef.run_parallel`: one node without others."""

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack, closing, nullcontext
from typing import TYPE_CHECKING, Any

from emberflow._plan.roles import Node
from emberflow._task.node_setup import Surroundings, run_node
from emberflow._task.node_task import gpu_addresses, held_pidfds, outcome_rows
from emberflow._task.report_sender import ReportSender
from emberflow._task.task_spec import TaskSpec
from emberflow._task.value_client import ValueClient

if TYPE_CHECKING:
    import pyarrow as pa

PARALLEL_SCHEMA = "task long, part long, outcome string, value binary"


def run_parallel_task(
    orders: TaskSpec, tasks: int, batches: "Iterator[pa.RecordBatch]"
) -> "Iterator[pa.RecordBatch]":
    """Run one node; yield how it ended, and its value in chunks. A failure is an outcome, not an error here.

    Args:
        orders: What all tasks are sent.
        tasks: How many they are.
        batches: The single row for which Spark started this task.
    """
    import pyarrow as pa
    from pyspark import TaskContext

    for _ in batches:
        pass
    context: Any = TaskContext.get()
    number = context.partitionId()
    me = Node(rank=0, role="chief", index=number)
    spec = dataclasses.replace(orders, plan=dataclasses.replace(orders.plan, nodes=(me,)))
    values = ValueClient(spec.values, spec.plan, spec.key, number, is_late=True)
    host = _own_host()
    with (
        closing(values),
        closing(ReportSender(spec, number, host, tasks)) as reports,
        ExitStack() as held,
    ):
        surroundings = Surroundings(
            host=host,
            gpu_addresses=gpu_addresses(context, spec.plan, me),
            watched=held_pidfds(held),
            all_gather=lambda message: [message],  # there is no other task to wait for
            reports=reports,
        )
        outcome, value = run_node(spec, me, surroundings, None, iter(()), values)
    with value or nullcontext():
        for batch in outcome_rows(outcome, value):
            columns = [pa.array([number] * batch.num_rows), *batch.columns[1:]]
            yield pa.RecordBatch.from_arrays(columns, names=["task", "part", "outcome", "value"])


def _own_host() -> str:
    import os
    import socket

    return os.environ.get("SPARK_LOCAL_IP") or socket.gethostname()
