"""Ranks to roles: the chief is rank 0, every rank has one role, indices count within it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from emberflow._plan.roles import assign_roles


@settings(deadline=None)  # a busy machine may stop any call for a while
@given(st.integers(1, 50), st.integers(0, 10), st.booleans())
def test_every_rank_has_one_role_and_indices_count_within_it(workers: int, ps: int, evaluator: bool) -> None:
    nodes = assign_roles(workers, ps, evaluator)
    assert [node.rank for node in nodes] == list(range(workers + ps + evaluator))
    assert nodes[0].role == "chief"
    assert sum(node.trains for node in nodes) == workers
    for role, count in (("chief", 1), ("worker", workers - 1), ("ps", ps), ("evaluator", int(evaluator))):
        assert [node.index for node in nodes if node.role == role] == list(range(count))


def test_names_are_what_people_see() -> None:
    assert [node.name for node in assign_roles(2, ps=1, evaluator=True)] == [
        "chief 0",
        "worker 1",
        "ps 2",
        "evaluator 3",
    ]
