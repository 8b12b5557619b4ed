"""Dynamic allocation without Spark: what is refused at once, what an attempt without a barrier does."""

import dataclasses
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from emberflow._driver.allocation import Allocation, read_allocation
from emberflow._driver.cluster_facts import ClusterFacts
from emberflow._driver.events import JobFailed, JobRows
from emberflow._driver.profiles import uses_default_profile
from emberflow._driver.slots import place_nodes, slots_held
from emberflow._driver.spark_errors import translate
from emberflow._plan import deadlines
from emberflow._plan.stages import Stage
from emberflow._protocol.driver_messages import NodeReady
from emberflow._record.recorder import Recorder
from emberflow.config import RunConfig
from emberflow.errors import (
    ClusterError,
    ConfigError,
    DataError,
    FailureCause,
    NodeLostError,
    StartTimeoutError,
)
from tests.unit.nodes import FakeNode, plan_of
from tests.unit.test_attempt import ROWS, RunningAttempt, attempt_of
from tests.unit.test_slots import spark_with

LOST = """Job aborted due to stage failure: Task 1 in stage 4.0 failed 4 times, most recent failure: Lost task 1.3 \
in stage 4.0 (TID 9) (10.0.0.7 executor 5): ExecutorLostFailure (executor 5 exited caused by one of the running \
tasks) Reason: Container killed by YARN for exceeding physical memory limits.
Driver stacktrace:"""


def facts_with(**known: Any) -> ClusterFacts:
    return ClusterFacts(is_connect=False, master="yarn", allocation=Allocation(**known))


def settings(**conf: str) -> Any:
    return SimpleNamespace(get={"spark." + key.replace("_", "."): value for key, value in conf.items()}.get)


@pytest.mark.parametrize(
    ("master", "conf", "slots"),
    [
        ("yarn", {}, None),
        ("yarn", {"dynamicAllocation_maxExecutors": "2147483647"}, None),
        ("yarn", {"dynamicAllocation_maxExecutors": "4"}, 4),
        ("k8s://a", {"dynamicAllocation_maxExecutors": "4", "executor_cores": "8"}, 32),
        ("spark://a:7077", {"dynamicAllocation_maxExecutors": "4"}, None),
        ("spark://a:7077", {"cores_max": "6"}, 6),
        ("yarn", {"cores_max": "6"}, None),
    ],
)
def test_settings_say_how_many_slots_may_come(master: str, conf: dict[str, str], slots: int | None) -> None:
    assert read_allocation(settings(**conf), master, "gpu").most_slots(cpus=1) == slots


def test_nodes_whose_executors_may_come_are_placed_though_none_is_there() -> None:
    facts = facts_with(most_executors=3, executor_cores=1)
    assert len(place_nodes(spark_with(0), RunConfig(workers=2, ps=1), facts)) == 3
    assert len(place_nodes(spark_with(0), RunConfig(workers="auto"), facts)) == 3
    assert len(place_nodes(spark_with(0), RunConfig(workers="auto"), facts, is_live=True)) == 2
    assert len(place_nodes(spark_with(0), RunConfig(workers=500), facts_with(executor_cores=1))) == 500


@pytest.mark.parametrize(
    ("asked", "is_live", "known", "says"),
    [
        ({"workers": 4}, False, {}, "4 nodes need a task slot each .* at most 3 slots"),
        ({"workers": 3, "evaluator": True}, False, {}, "4 nodes need"),
        ({"workers": 3}, True, {}, "one more for the jobs that feed them"),
        ({"workers": 2}, False, {"ratio": 0.5}, r"executorAllocationRatio=0\.5.* for 1 of them"),
    ],
)
def test_what_can_never_have_executors_is_refused_at_once(
    asked: dict[str, Any], is_live: bool, known: dict[str, Any], says: str
) -> None:
    facts = facts_with(most_executors=3, executor_cores=1, **known)
    with pytest.raises(ClusterError, match=says):
        place_nodes(spark_with(0), RunConfig(**asked), facts, is_live=is_live)


def test_auto_without_a_last_executor_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no spark\.dynamicAllocation\.maxExecutors"):
        place_nodes(spark_with(5), RunConfig(workers="auto"), facts_with(executor_cores=1))


def test_gpus_are_counted_by_executor_and_a_profile_is_used_only_where_tasks_differ() -> None:
    facts = dataclasses.replace(
        facts_with(most_executors=2, executor_cores=8), gpus_per_executor=2, gpus_per_task=1.0
    )
    assert len(place_nodes(spark_with(0), RunConfig(workers=4, ps=1, gpus=1), facts)) == 5
    with pytest.raises(ClusterError, match=r"5 nodes .* with 1 GPUs each"):
        place_nodes(spark_with(0), RunConfig(workers=5, gpus=1), facts)
    stages = [Stage(first_rank=0, ranks=1, gpus=gpus) for gpus in range(3)]
    assert [uses_default_profile(stage, facts) for stage in stages] == [False, True, False]


def test_runs_share_the_slots_that_may_come_and_wait_for_none_without_a_limit() -> None:
    said: list[str] = []
    limited, any_number = facts_with(most_executors=3, executor_cores=1), facts_with(executor_cores=1)
    with slots_held(spark_with(0), plan_of(2), limited, said.append, Recorder()):
        with slots_held(spark_with(0), plan_of(2), any_number, said.append, Recorder()):
            assert not said
        second = threading.Thread(
            target=lambda: slots_held(
                spark_with(0), plan_of(2), limited, said.append, Recorder()
            ).__enter__(),
            daemon=True,
        )
        second.start()
        while not said:
            threading.Event().wait(0.01)
    second.join(5)
    assert said == ["waits for 2 of 3 task slots; run 0a1b holds 2"]


def test_spark_that_refuses_a_barrier_is_told_apart() -> None:
    error = translate(RuntimeError("[SPARK-24942]: Barrier execution mode does not support dynamic"))
    assert error.cause is FailureCause.BARRIER_REFUSED


def test_executors_that_do_not_come_are_counted_at_the_deadline() -> None:
    with attempt_of(3, start_timeout=2.0, launch="independent") as running:
        running.nodes = [FakeNode(running.hub, 1)]
        running.nodes[0].say(NodeReady())
        threading.Thread(target=running.quit_all).start()
        error = running.error()
    assert isinstance(error, StartTimeoutError)
    assert "executors came for 1 of 3 nodes, and not for chief 0, worker 2" in str(error)


@pytest.mark.parametrize("is_without", [True, False])
def test_rows_may_take_their_time_but_not_without_an_executor(is_without: bool) -> None:
    with attempt_of(1, start_timeout=0.3, launch="independent", waits_for_rows=True) as running:
        running.job.is_without_executors = is_without
        if is_without:
            assert isinstance(running.error(), StartTimeoutError)
            return
        running._await(lambda: running.attempt._start.due() == (None, None))
        (node,) = running.start(1)
        node.end()
        running.spark_says(JobRows(ROWS))
        assert running.result.result(timeout=20) == ROWS


def test_a_lost_node_ends_the_attempt_though_spark_goes_on_with_another_task() -> None:
    with attempt_of(launch="independent") as running:
        first, second = running.start(2)
        running.job.losses[1] = "ExecutorLostFailure (executor 1 exited) Reason: Command exited with code 137"
        second.close()
        running.hear_the_end_of(second)
        again = FakeNode(running.hub, 1)
        assert not again.is_admitted
        again.hear_quit()
        first.hear_quit()
        running._await(lambda: running.job.cancelled > 0)  # before Spark has a slot for the other task
        first.close()
        error = running.error()  # the job was cancelled: it would wait for a task that has nothing to do
        assert isinstance(error, NodeLostError)
        assert error.rank == 1
        assert "its Spark task was lost: ExecutorLostFailure (executor 1 exited) Reason: Command" in str(
            error
        )


def copied(running: RunningAttempt) -> FakeNode:
    """Let a second task of rank 1 come after both nodes have returned."""
    nodes = running.start(2)
    for node in nodes:
        node.end()
    running.hear_the_end_of(*nodes)
    return FakeNode(running.hub, 1)


@pytest.mark.fault
def test_a_copy_that_comes_late_and_is_ended_by_spark_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deadlines, "COPY_END_TIMEOUT", 0.2)
    with attempt_of(launch="independent") as running:
        copied(running).close()
        running._await(lambda: running.attempt._copies.due() is None)
        running.spark_says(JobRows(ROWS))
        assert running.result.result(timeout=20) == ROWS


def test_a_node_whose_result_spark_has_lost_is_a_lost_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "COPY_END_TIMEOUT", 0.2)
    with attempt_of(launch="independent") as running:
        again = copied(running)
        again.hear_quit()
        error = running.error()
        assert isinstance(error, NodeLostError)
        assert "Spark lost the result of its task" in str(error)


def test_spark_that_gives_up_a_task_names_the_node_and_the_cause() -> None:
    with attempt_of(launch="independent") as running:
        _, second = running.start(2)
        second.close()
        running.spark_says(JobFailed(RuntimeError(LOST)))
        running.quit_all()
        error = running.error()
        assert isinstance(error, NodeLostError)
        assert error.rank == 1


def test_a_failure_before_any_node_is_there_is_one_of_the_rows() -> None:
    with attempt_of(launch="independent", waits_for_rows=True) as running:
        failed = "Task 1 in stage 0.0 failed 4 times, most recent failure: Lost task 1.3 in stage 0.0 (TID 9) (h): "
        running.spark_says(JobFailed(RuntimeError(f"{failed}ValueError: row 77 is bad")))
        assert isinstance(running.error(), DataError)
