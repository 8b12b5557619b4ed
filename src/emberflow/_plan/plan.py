"""RunPlan: everything that was decided before anything starts, in one value."""

from dataclasses import dataclass, field
from typing import Literal

from emberflow._plan.roles import Node

Meeting = Literal["driver", "barrier"]


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """What one attempt will start. Printable; holds no key and no code.

    Attributes:
        run_id: Names the run in process environments, folders and logs.
        attempt: 0 for the first try of the gang.
        nodes: One per rank.
        meeting: Where nodes learn each other's addresses: at the driver (milliseconds), or by Spark's
            barrier (a second) where the driver cannot be dialled.
        driver_address: Host and port that tasks dial; None when there is nobody to dial.
        start_timeout: Seconds until every node must have joined.
        forward_logs: Whether nodes' output is sent to the driver line by line.
        python: The driver's Python as (major, minor); executors must agree.
    """

    run_id: str
    attempt: int = 0
    nodes: tuple[Node, ...]
    meeting: Meeting
    driver_address: tuple[str, int] | None
    start_timeout: float
    forward_logs: bool
    python: tuple[int, int]
    environment: dict[str, str] = field(default_factory=dict)
