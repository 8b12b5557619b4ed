"""The stages that start the nodes."""

from collections.abc import Sequence
from dataclasses import dataclass

from emberflow._plan.roles import Node


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Neighbouring ranks that Spark starts together, each task with the same resources."""

    first_rank: int
    ranks: int
    gpus: int


def stages_of(nodes: Sequence[Node], gpus: int) -> tuple[Stage, ...]:
    """Return one stage for all nodes, or two where workers hold GPUs and others must not.

    >>> from emberflow._plan.roles import assign_roles
    >>> [stage.ranks for stage in stages_of(assign_roles(4, ps=1), gpus=1)]
    [4, 1]
    """
    trainers = sum(node.trains for node in nodes)
    helpers = len(nodes) - trainers
    if not gpus or not helpers:
        return (Stage(first_rank=0, ranks=len(nodes), gpus=gpus),)
    return (
        Stage(first_rank=0, ranks=trainers, gpus=gpus),
        Stage(first_rank=trainers, ranks=helpers, gpus=0),
    )
