"""All that a task is sent by the driver."""

from dataclasses import dataclass, field

from emberflow._plan.plan import RunPlan
from emberflow._task.row_writer import DataSpec
from emberflow._task.value_client import ValuePlan


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """All that a task is sent. The key travels here, inside Spark's own serialised closure, and nowhere else."""

    plan: RunPlan
    key: bytes = field(repr=False)
    fn: bytes = field(repr=False)
    data: DataSpec = field(default_factory=DataSpec)
    values: ValuePlan = field(default_factory=ValuePlan)
    first_rank: int = 0
