"""Whose GPUs a run on an idle cluster gets: those of a node of its own executor, one run at a time."""

import secrets
from contextlib import ExitStack

import pytest

from emberflow._task.executor import executor_pid
from emberflow._task.warm_start import WarmAccess, WarmStarter, borrowed_gpus
from emberflow.errors import ClusterError


def starter(devices: str, host: str = "here", jvm: int | None = None) -> WarmStarter:
    name = f"emberflow-test-{secrets.token_hex(8)}"
    return WarmStarter(name=name, host=host, jvm=executor_pid() if jvm is None else jvm, devices=devices)


def access(*starters: WarmStarter) -> WarmAccess:
    return WarmAccess(starters=starters, key=b"key")


def test_a_task_gets_the_gpus_that_spark_names_where_an_idle_node_holds_them() -> None:
    idle = access(starter("0"), starter("1"))
    with ExitStack() as first, ExitStack() as second:
        assert borrowed_gpus(idle, "here", ("1",), first) == ("1",)
        assert borrowed_gpus(idle, "here", ("0",), second) == ("0",)


def test_gpus_in_other_groups_than_those_of_the_idle_nodes_are_exchanged_for_theirs() -> None:
    idle = access(starter("0,1"), starter("2,3"))
    with ExitStack() as held:
        assert borrowed_gpus(idle, "here", ("0", "2"), held) == ("0", "1")
        assert borrowed_gpus(idle, "here", ("1", "3"), held) == ("2", "3")


def test_gpus_that_no_idle_node_of_this_executor_holds_are_not_its() -> None:
    idle = access(starter("0"), starter("1", host="elsewhere"), starter("2", jvm=1), starter(""))
    with ExitStack() as held:
        for given in ("1", "2", "3"):
            assert borrowed_gpus(idle, "here", (given,), held) is None
        assert borrowed_gpus(access(starter("")), "here", (), held) is None


def test_without_addresses_of_spark_any_free_idle_node_will_do() -> None:
    idle = access(starter("GPU-a"), starter("GPU-b"))
    with ExitStack() as held:
        assert [borrowed_gpus(idle, "here", (), held) for _ in range(2)] == [("GPU-a",), ("GPU-b",)]


def test_a_second_run_is_told_who_holds_the_gpus_and_gets_them_after_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("emberflow._plan.deadlines.GPU_LOCK_TIMEOUT", 0.05)
    idle = access(starter("0"))
    with ExitStack() as held:
        with ExitStack() as first:
            assert borrowed_gpus(idle, "here", ("0",), first) == ("0",)
            with pytest.raises(ClusterError, match="A GPU belongs to one node at a time"):
                borrowed_gpus(idle, "here", ("0",), held)
        assert borrowed_gpus(idle, "here", ("0",), held) == ("0",)
