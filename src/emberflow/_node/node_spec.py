"""What a node receives from its task before anything else."""

from dataclasses import dataclass, field

from emberflow._plan.plan import RunPlan
from emberflow._plan.roles import Node

JOB_FILE = "job.pickle"
VALUE_FILE = "value.pickle"


@dataclass(frozen=True, kw_only=True)
class NodeSpec:
    """One node's part of the plan, and what it needs for that.

    Attributes:
        me: Which node it is.
        plan: The whole plan.
        host: Its host, as Spark names it.
        folder: Its own folder.
        devices: Its GPUs.
        data: Names of the data that will be handed over.
        streams: Whether it is a stream, to be read once.
        key: With which ranks authenticate each other.
        fn: Your function, pickled; or
        fn_path: the file with it, where it is large.
    """

    me: Node
    plan: RunPlan
    host: str
    folder: str
    devices: tuple[str, ...]
    data: tuple[str, ...] = ()
    streams: bool = False
    key: bytes = field(repr=False)
    fn: bytes = field(repr=False)
    fn_path: str = ""
