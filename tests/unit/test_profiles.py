"""What tasks hold, and which GPUs are refused before anything starts."""

import dataclasses

import pytest

from emberflow._driver.cluster_facts import ClusterFacts
from emberflow._driver.profiles import check_gpus, common_profile, profile_of
from emberflow._plan.stages import Stage
from emberflow.config import RunConfig
from emberflow.errors import ClusterError, ConfigError

CPUS = ClusterFacts(is_connect=False, cpus_per_task=2)
GPUS = ClusterFacts(is_connect=False, gpus_per_executor=2, gpus_per_task=0.5)
UNUSED = ClusterFacts(is_connect=False, gpus_per_executor=2)


def stage(gpus: int) -> Stage:
    return Stage(first_rank=0, ranks=2, gpus=gpus)


def amounts(facts: ClusterFacts, gpus: int) -> dict[str, float]:
    profile = profile_of(stage(gpus), facts)
    assert profile.executorResources == {}  # a profile of tasks only: the executors that are there will do
    return {name: request.amount for name, request in profile.taskResources.items()}


@pytest.mark.parametrize("facts", [CPUS, UNUSED])
def test_the_sessions_own_settings_do_where_tasks_hold_no_gpu(facts: ClusterFacts) -> None:
    assert profile_of(stage(0), facts) is None
    assert common_profile(facts) is None


def test_a_worker_holds_whole_gpus_also_where_the_session_shares_them() -> None:
    assert amounts(GPUS, 2) == {"cpus": 1, "gpu": 2}


def test_nodes_without_gpus_do_not_hold_what_the_session_gives_to_every_task() -> None:
    assert amounts(GPUS, 0) == {"cpus": 1}


def test_tasks_keep_the_sessions_cpus() -> None:
    facts = ClusterFacts(is_connect=False, cpus_per_task=2, gpus_per_executor=1, gpus_per_task=1)
    assert amounts(facts, 1) == {"cpus": 2, "gpu": 1}


def test_a_session_gets_each_profile_once_so_that_spark_warns_once() -> None:
    first = ClusterFacts(is_connect=False, application="app-1", gpus_per_executor=2, gpus_per_task=1)
    second = dataclasses.replace(first, application="app-2")
    assert profile_of(stage(1), first) is profile_of(stage(1), first)
    assert common_profile(first) is profile_of(stage(0), first)
    assert profile_of(stage(2), first) is not profile_of(stage(1), first)
    before = profile_of(stage(1), first)
    assert profile_of(stage(1), second) is not before, "its JVM may be another"
    assert profile_of(stage(1), first) is not before, "and what belonged to the other is not kept"


def test_gpus_may_have_another_name() -> None:
    facts = dataclasses.replace(GPUS, gpu_resource="mig")
    assert amounts(facts, 1) == {"cpus": 1, "mig": 1}
    none = dataclasses.replace(CPUS, gpu_resource="mig")
    with pytest.raises(ClusterError, match=r"no spark\.executor\.resource\.mig\.amount") as caught:
        check_gpus(RunConfig(workers=2, gpus=1), none)
    assert "gpu_resource=" in caught.value.fix


@pytest.mark.parametrize("name", ["", "a b", 1])
def test_names_that_no_resource_can_have_are_refused(name: object) -> None:
    with pytest.raises(ConfigError, match="`gpu_resource` must be the name"):
        RunConfig(workers=1, gpus=1, gpu_resource=name)  # type: ignore[arg-type]


def test_gpus_where_spark_has_none_are_refused() -> None:
    with pytest.raises(ClusterError, match=r"manages no GPUs.*Received: gpus=1") as caught:
        check_gpus(RunConfig(workers=2, gpus=1), CPUS)
    assert 'gpu_source="nvml"' in caught.value.fix


def test_more_gpus_than_an_executor_has_are_refused() -> None:
    with pytest.raises(ClusterError, match=r"gpus=3, but each executor has 2"):
        check_gpus(RunConfig(workers=2, gpus=3), GPUS)


def test_nvml_beside_sparks_gpus_is_refused() -> None:
    with pytest.raises(ClusterError, match="would give those that nodes pick to others"):
        check_gpus(RunConfig(workers=2, gpus=1, gpu_source="nvml"), GPUS)


@pytest.mark.parametrize(
    ("config", "facts"),
    [
        (RunConfig(workers=2), CPUS),
        (RunConfig(workers=2), GPUS),
        (RunConfig(workers=2, gpus=2), GPUS),
        (RunConfig(workers=2, gpus=1), UNUSED),
        (RunConfig(workers=2, gpus=4, gpu_source="nvml"), CPUS),
    ],
)
def test_gpus_that_can_be_had_pass(config: RunConfig, facts: ClusterFacts) -> None:
    check_gpus(config, facts)
