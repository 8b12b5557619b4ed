"""Which nodes get a slot: roles, "auto", and what is refused for lack of slots. Spark is a stand-in here."""

import dataclasses
import threading
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from emberflow._driver.cluster_facts import ClusterFacts
from emberflow._driver.slots import expected_slots, place_nodes, slots_held, wait_for_slots
from emberflow._record.events import RunPlanned, RunStarted
from emberflow._record.recorder import Recorder
from emberflow.config import RunConfig
from emberflow.errors import ClusterError, ConfigError
from tests.unit.nodes import plan_of

FACTS = ClusterFacts(is_connect=False, master="spark://a:7077")
CONNECT = ClusterFacts(is_connect=True)


def spark_with(*slots: int, master: str = "spark://a:7077", **conf: str) -> Any:
    """Return a session that offers `slots`, one after another as executors register; the last for good."""
    left = list(slots)

    def count(_: object) -> int:
        return left.pop(0) if len(left) > 1 else left[0]

    manager = SimpleNamespace(defaultResourceProfile=lambda: None, addResourceProfile=lambda _: None)
    java = SimpleNamespace(resourceProfileManager=lambda: manager, maxNumConcurrentTasks=count)
    settings = {"spark." + name.replace("_", "."): value for name, value in conf.items()}
    context = SimpleNamespace(
        _jsc=SimpleNamespace(sc=lambda: java), applicationId="app", getConf=lambda: settings, master=master
    )
    return SimpleNamespace(sparkContext=context)


def roles(spark: Any, facts: ClusterFacts = FACTS, **asked: Any) -> Counter[str]:
    config = RunConfig(**asked)
    return Counter(node.role for node in place_nodes(spark, config, facts))


def test_all_roles_get_a_seat() -> None:
    assert roles(spark_with(5), workers=2, ps=2, evaluator=True) == {
        "chief": 1,
        "worker": 1,
        "ps": 2,
        "evaluator": 1,
    }


def test_auto_workers_take_what_the_others_leave() -> None:
    spark = spark_with(2, 2, 6, cores_max="6")
    assert roles(spark, workers="auto", ps=1, evaluator=True) == {
        "chief": 1,
        "worker": 3,
        "ps": 1,
        "evaluator": 1,
    }


def test_auto_ps_reads_the_executors_environment() -> None:
    facts = dataclasses.replace(FACTS, parameter_servers="2")
    assert roles(spark_with(6), facts, workers=2, ps="auto")["ps"] == 2
    assert roles(spark_with(6), FACTS, workers=2, ps="auto")["ps"] == 0


@pytest.mark.parametrize("text", ["two", "-1", "1.5"])
def test_auto_ps_that_is_no_number_is_refused(text: str) -> None:
    facts = dataclasses.replace(FACTS, parameter_servers=text)
    with pytest.raises(ClusterError, match=f"NUM_TF_PS={text}"):
        roles(spark_with(6), facts, workers=2, ps="auto")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"workers": 2, "evaluator": True}, "needs 3 task slots at the same time for 2 workers and 1 ps or"),
        ({"workers": 3}, "needs 3 task slots"),
        ({"workers": "auto", "ps": 2}, "needs 3 task slots at the same time for 1 workers and 2 ps or"),
    ],
)
def test_two_slots_are_too_few(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(ClusterError, match=says) as caught:
        roles(spark_with(2), start_timeout=0.1, **asked)
    assert "Received: 2 slots from spark://a:7077" in str(caught.value)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"workers": 0, "ps": 1}, "`workers` must be"),
        ({"workers": 2, "ps": -1}, "Received: ps=-1"),
        ({"workers": 2, "ps": 1.0}, "Received: ps=1.0"),
        ({"workers": 2, "gpus": 0.5}, "Received: gpus=0.5"),
        ({"workers": 2, "gpus": "1"}, "Received: gpus='1'"),
        ({"workers": 2, "gpus": 1, "gpu_source": "cuda"}, "Received: gpu_source='cuda'"),
        ({"workers": 2, "evaluator": 2}, "Received: evaluator=2"),
        ({"workers": 2, "max_restarts": -1}, "Received: max_restarts=-1"),
        ({"workers": 2, "checkpoint_dir": 5}, "Received: checkpoint_dir=5"),
        ({"workers": 2, "tensorboard": True}, "Received: tensorboard=True"),
    ],
)
def test_wrong_arguments_are_named(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        RunConfig(**asked)


@pytest.mark.parametrize("asked", [{"workers": "auto"}, {"workers": 2, "ps": "auto"}])
def test_auto_is_refused_on_connect(asked: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="On Spark Connect neither slots nor settings"):
        roles(None, CONNECT, **asked)


def test_gpus_beside_ps_are_refused_on_connect_but_for_nvml() -> None:
    with pytest.raises(ConfigError, match="two stages that exchange addresses at the driver"):
        roles(None, CONNECT, workers=2, ps=1, gpus=1)
    assert roles(None, CONNECT, workers=2, ps=1, gpus=1, gpu_source="nvml")["ps"] == 1
    assert roles(None, CONNECT, workers=2, gpus=1) == {"chief": 1, "worker": 1}


@pytest.mark.parametrize(
    ("master", "conf", "slots"),
    [
        ("local-cluster[2, 3, 1024]", {}, 6),
        ("local-cluster[2,3,1024]", {"task_cpus": "2"}, 2),
        ("yarn", {"executor_instances": "4", "executor_cores": "8", "task_cpus": "4"}, 8),
        ("spark://a:7077", {"cores_max": "6"}, 6),
        ("spark://a:7077", {}, None),
    ],
)
def test_settings_promise_slots(master: str, conf: dict[str, str], slots: int | None) -> None:
    assert expected_slots(spark_with(1, master=master, **conf)) == slots


def test_runs_take_turns_for_gpus_too() -> None:
    facts = ClusterFacts(is_connect=False, gpus_per_executor=4)
    plan = dataclasses.replace(plan_of(2), gpus=2)
    said: list[str] = []
    order: list[str] = []

    def run(name: str) -> None:
        with slots_held(spark_with(8, 2), plan, facts, said.append, Recorder()):
            order.append(name)

    with slots_held(spark_with(8, 2), plan, facts, said.append, Recorder()):
        second = threading.Thread(target=run, args=("second",))
        second.start()
        while not said:
            threading.Event().wait(0.01)
        order.append("first")
    second.join(5)
    assert order == ["first", "second"]
    assert said == ["waits for 4 of 4 GPUs; run 0a1b holds 4"]


def test_a_run_that_takes_its_turn_records_what_it_waits_for_and_when_it_has_its_slots() -> None:
    facts, plan = ClusterFacts(is_connect=False), plan_of(2)
    first, second = Recorder(), Recorder()
    first.emit(RunStarted, run_id=plan.run_id, kind="run", name="mnist", at=0.0)
    waits = threading.Event()

    def run() -> None:
        second.emit(RunPlanned, nodes=())
        with slots_held(spark_with(2), plan, facts, lambda _: waits.set(), second):
            pass

    with slots_held(spark_with(2), plan, facts, pytest.fail, first):
        assert [each["name"] for each in first.state.start.phases] == ["slots"]
        thread = threading.Thread(target=run)
        thread.start()
        assert waits.wait(5)
        deadline = time.monotonic() + 5
        while second.state.start.waiting is None and time.monotonic() < deadline:
            threading.Event().wait(0.01)
        assert second.state.head()["waiting"] == "waits for 2 of 2 task slots; run mnist 0a1b holds 2"
        assert [each["name"] for each in second.state.start.phases] == ["planned"]
    thread.join(5)
    assert second.state.head()["waiting"] is None
    assert [each["name"] for each in second.state.start.phases] == ["planned", "slots"]


def test_executors_that_a_run_waits_for_are_in_its_record() -> None:
    recorder = Recorder()
    assert wait_for_slots(spark_with(0, 0, 1, 3), None, 3, timeout=5, recorder=recorder) == 3
    assert recorder.state.start.waiting == "waits for 3 task slots; Spark has 1"
    assert recorder.state.version == 2


def test_slots_that_come_late_are_waited_for() -> None:
    assert wait_for_slots(spark_with(0, 0, 1, 3), None, 3, timeout=5) == 3
    assert wait_for_slots(spark_with(1), None, 3, timeout=5, settle=0.05) == 1


def test_a_run_waits_for_executors_as_long_as_executor_timeout_says() -> None:
    assert roles(spark_with(1, *[1] * 5, 2), workers=2, executor_timeout=5.0) == {"chief": 1, "worker": 1}
    with pytest.raises(ClusterError, match="Received: 1 slots") as caught:
        roles(spark_with(1, *[1] * 5, 2), workers=2, executor_timeout=0.05)
    assert "raise executor_timeout" in caught.value.fix
