"""Who starts beside whom."""

import pytest

from emberflow._plan.roles import assign_roles
from emberflow._plan.stages import Stage, stages_of


@pytest.mark.parametrize("gpus", [0, 2])
def test_workers_alone_are_one_stage(gpus: int) -> None:
    assert stages_of(assign_roles(3), gpus) == (Stage(first_rank=0, ranks=3, gpus=gpus),)


def test_without_gpus_all_roles_share_a_stage() -> None:
    assert stages_of(assign_roles(2, ps=2, evaluator=True), 0) == (Stage(first_rank=0, ranks=5, gpus=0),)


def test_beside_workers_with_gpus_the_others_have_a_stage_without() -> None:
    nodes = assign_roles(3, ps=2, evaluator=True)
    trainers, helpers = stages_of(nodes, 2)
    assert trainers == Stage(first_rank=0, ranks=3, gpus=2)
    assert helpers == Stage(first_rank=3, ranks=3, gpus=0)
    assert [node.role for node in nodes[helpers.first_rank :]] == ["ps", "ps", "evaluator"]
    assert not any(node.trains for node in nodes[helpers.first_rank :])
