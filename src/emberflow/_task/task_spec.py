"""All that a task is sent by the driver."""

from dataclasses import dataclass, field

from emberflow._plan.plan import RunPlan
from emberflow._task.row_writer import DataSpec
from emberflow._task.value_client import ValuePlan
from emberflow._task.warm_start import WarmAccess
from emberflow.storage import StorageSettings


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """All that a task is sent. The key travels here, inside Spark's own serialised closure, and nowhere else.

    Attributes:
        plan: The attempt's plan.
        key: Its secret.
        fn: Your function, pickled; empty where tasks fetch it.
        data: What it is fed with.
        values: How large values travel.
        first_rank: The first rank of the task's stage.
        warm: Processes from which nodes are forked, where an idle cluster has them.
        storage: Hadoop's settings, with which task and node open URLs; they may hold secrets.
    """

    plan: RunPlan
    key: bytes = field(repr=False)
    fn: bytes = field(repr=False)
    data: DataSpec = field(default_factory=DataSpec)
    values: ValuePlan = field(default_factory=ValuePlan)
    first_rank: int = 0
    warm: WarmAccess | None = None
    storage: StorageSettings = field(default_factory=StorageSettings)
