"""What the user may choose is checked before anything starts."""

import math
from typing import Any

import pytest

from emberflow._driver.cluster_facts import ClusterFacts
from emberflow._driver.run_plan import make_plan
from emberflow._plan.roles import assign_roles
from emberflow.config import RunConfig, parse_port_range
from emberflow.errors import ConfigError


@pytest.mark.parametrize("workers", [0, -1, "two", True, False, 1.0, None, [2], "", b"auto"])
def test_workers_must_be_a_count_or_auto(workers: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        RunConfig(workers=workers)
    assert f"Received: workers={workers!r}" in str(caught.value)
    assert "Fix: Pass workers=1 or higher" in str(caught.value)


@pytest.mark.parametrize("workers", [1, 2, 1000, "auto"])
def test_good_workers_are_taken(workers: Any) -> None:
    assert RunConfig(workers=workers).workers == workers


@pytest.mark.parametrize(
    "name", ["start_timeout", "executor_timeout", "join_timeout", "exchange_timeout", "evaluator_timeout"]
)
@pytest.mark.parametrize("seconds", [0, -1.0, "soon", True, None, math.nan, math.inf])
def test_timeouts_must_be_positive_numbers(name: str, seconds: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        RunConfig(**{"workers": 1, name: seconds})
    assert f"Received: {name}={seconds!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"strategy": "async", "ps": 1}, "strategy='async'"),
        ({"strategy": "periodic"}, "ps=0"),
        ({"strategy": "periodic", "ps": 1, "cache": False}, "cache=False"),
        ({"strategy": "parameter_server", "ps": 1, "workers": 1}, "workers=1"),
    ],
)
def test_asynchronous_strategies_say_what_they_lack(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RunConfig(**({"workers": 2} | given))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "ports", ["30000", "30100-30000", "0-10", "1-65536", "a-b", "1-2-3", "", 30000, (1, 2), "-1-5"]
)
def test_a_port_range_that_is_none_is_refused(ports: object) -> None:
    with pytest.raises(ConfigError, match="two ports from 1 to 65535") as caught:
        RunConfig(workers=1, port_range=ports)  # type: ignore[arg-type]
    assert f"port_range={ports!r}" in caught.value.problem


def test_a_port_range_is_read_with_and_without_blanks() -> None:
    assert parse_port_range("port_range", "30000-30100") == (30000, 30100)
    assert parse_port_range("port_range", " 80 - 80 ") == (80, 80)


def test_every_deadline_of_a_run_is_in_its_plan() -> None:
    names = ["start_timeout", "join_timeout", "exchange_timeout", "evaluator_timeout"]
    given = {name: 7.0 + number for number, name in enumerate(names)}
    facts = ClusterFacts(is_connect=False, master="spark://a:7077")
    config = RunConfig(
        workers=1, executor_timeout=3.0, **given
    )  # executors are waited for before there is a plan
    plan = make_plan(config, facts, assign_roles(1), waits_for_rows=False)
    assert {name: getattr(plan, name) for name in names} == given


@pytest.mark.parametrize(
    ("master", "copied"), [("local[2]", "none"), ("local-cluster[2,1,1024]", "all"), (None, "all")]
)
def test_local_mode_has_no_executor_log_to_copy_nodes_output_to(master: str | None, copied: str) -> None:
    facts = ClusterFacts(is_connect=master is None, master=master)
    plan = make_plan(RunConfig(workers=1), facts, assign_roles(1), waits_for_rows=False)
    assert plan.log_copy == copied
