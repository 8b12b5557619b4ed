"""TensorFlow roles of the ranks."""

from dataclasses import dataclass
from typing import Literal

Role = Literal["chief", "worker", "ps", "evaluator", "dispatcher", "data-worker"]
TF_ROLES: tuple[Role, ...] = (
    "chief",
    "worker",
    "ps",
)  # TensorFlow's cluster: its collectives would wait for others


@dataclass(frozen=True)
class Node:
    """One process of the cluster: `rank` is global, `index` counts within `role`."""

    rank: int
    role: Role
    index: int

    @property
    def name(self) -> str:
        """The name in logs and errors: the role and the rank.

        >>> Node(rank=1, role="worker", index=0).name
        'worker 1'
        """
        return f"{self.role} {self.rank}"

    @property
    def trains(self) -> bool:
        """Whether this node trains on rows: the chief and the workers do."""
        return self.role in ("chief", "worker")


def assign_roles(workers: int, ps: int = 0, evaluator: bool = False) -> tuple[Node, ...]:
    """Return one node per rank: the chief first, then workers, ps, evaluator.

    >>> [node.name for node in assign_roles(workers=2, ps=1)]
    ['chief 0', 'worker 1', 'ps 2']
    """
    counts: dict[Role, int] = {
        "chief": 1,
        "worker": workers - 1,
        "ps": ps,
        "evaluator": int(evaluator),
    }
    seats = [(role, index) for role, count in counts.items() for index in range(count)]
    return tuple(Node(rank, role, index) for rank, (role, index) in enumerate(seats))
