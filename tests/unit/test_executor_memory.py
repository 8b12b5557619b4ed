"""Memory beside the executor's JVM: what Spark gives, and what is said when it was too little."""

import pytest

from emberflow._driver.executor_memory import executor_memory, limits_memory
from emberflow._driver.spark_errors import lost_task_in
from emberflow.cli.doctor import check_executors

BARRIER = (
    "Job aborted due to stage failure: Could not recover from a failed barrier ResultStage. Most recent failure "
    "reason: Stage failed because barrier task ResultTask(63, 1) finished unsuccessfully.\n"
    "ExecutorLostFailure (executor 2 exited caused by one of the running tasks) Reason: "
)
YARN = (
    "Container killed by YARN for exceeding physical memory limits. 2.6 GB of 1.5 GB physical memory used. Consider "
    "boosting spark.executor.memoryOverhead."
)
KUBERNETES = "The executor with id 2 exited with exit code 137(SIGKILL, possible container OOM)."


@pytest.mark.parametrize(
    ("settings", "master", "overhead", "nodes"),
    [
        ({}, "yarn", 384, 1),
        ({"spark.executor.memory": "20g"}, "yarn", 2048, 1),
        ({"spark.executor.memory": "20g", "spark.executor.cores": "4"}, "k8s://h", 8192, 4),
        (
            {"spark.executor.memoryOverhead": "3g", "spark.executor.cores": "5", "spark.task.cpus": "2"},
            "yarn",
            3072,
            2,
        ),
        ({"spark.executor.memoryOverhead": "700"}, "yarn", 700, 1),
        ({"spark.executor.memoryOverheadFactor": "0.5", "spark.executor.memory": "4g"}, "yarn", 2048, 1),
    ],
)
def test_the_overhead_is_what_spark_would_take(
    settings: dict[str, str], master: str, overhead: int, nodes: int
) -> None:
    memory = executor_memory(settings.get, master)
    assert (memory.overhead, memory.nodes) == (overhead, nodes)
    assert limits_memory(master)


@pytest.mark.parametrize("reason", [YARN, KUBERNETES])
def test_a_container_that_was_killed_for_memory_is_named_with_the_setting(reason: str) -> None:
    lost = lost_task_in(RuntimeError(BARRIER + reason))
    assert lost is not None
    assert lost.partition == 1
    assert reason in lost.problem
    assert "spark.executor.memoryOverhead=2g" in lost.fix


def test_a_container_that_ended_in_another_way_is_named_without_advice_on_memory() -> None:
    reason = "Container from a bad node: container_17_01_000003 on host: a. Exit status: 1."
    lost = lost_task_in(RuntimeError(BARRIER + reason))
    assert lost is not None
    assert reason in lost.problem
    assert lost.fix == ""


@pytest.mark.parametrize(("overhead", "state"), [(384, "warning"), (2048, "ok")])
def test_doctor_compares_it_with_what_tensorflow_needs(overhead: int, state: str) -> None:
    memory = {"overhead": overhead, "nodes": 2, "is_set": False}
    answer = {"host": "a", "python": [3, 0], "program": "python"}
    answer |= dict.fromkeys(("emberflow", "tensorflow", "keras", "pandas"), "1")
    findings = check_executors({"slots": 2, "memory": memory, "answers": [answer], "is_allocating": False})
    (found,) = [finding for finding in findings if finding.what == "Executor memory"]
    assert found.state == state
    assert f"{overhead} MB" in found.text
    assert ("spark.executor.memoryOverhead=2048m" in found.fix) == (state == "warning")
