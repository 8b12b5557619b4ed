"""Chief, workers, parameter servers and evaluator: who each is told to be, and when each ends."""

import json
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

import emberflow as ef
from emberflow.errors import ClusterError, ConfigError, NodeFailedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("nothing_left")


def who_i_am(ctx: Any) -> dict[str, Any]:
    """Tell all that a node knows of itself; the evaluator looks on until the others are done."""
    if ctx.role == "evaluator":
        assert ctx.wait_until_over(60)
        assert ctx.is_over
    return {
        "role": (ctx.role, ctx.index, ctx.rank),
        "sizes": (ctx.workers, ctx.ps),
        "is_chief": ctx.is_chief,
        "spec": ctx.cluster_spec,
        "tf_config": ctx.tf_config,
        "environment": json.loads(os.environ["TF_CONFIG"]),
    }


def test_every_node_knows_its_role_and_the_cluster(spark_gpus: "SparkSession") -> None:
    result = ef.run(who_i_am, workers=3, ps=2, evaluator=True, spark=spark_gpus, verbose=False)
    values = [report.value for report in result.reports]
    assert [value["role"] for value in values] == [
        ("chief", 0, 0),
        ("worker", 0, 1),
        ("worker", 1, 2),
        ("ps", 0, 3),
        ("ps", 1, 4),
        ("evaluator", 0, 5),
    ]
    spec = values[0]["spec"]
    assert {job: len(addresses) for job, addresses in spec.items()} == {"chief": 1, "worker": 2, "ps": 2}
    assert len({address for addresses in spec.values() for address in addresses}) == 5
    for value in values:
        role, index, rank = value["role"]
        assert value["sizes"] == (3, 2)
        assert value["is_chief"] == (rank == 0)
        # The evaluator is not in the cluster: TensorFlow's collectives would wait for it.
        assert value["tf_config"] == {"cluster": spec, "task": {"type": role, "index": index}}
        assert value["environment"] == value["tf_config"]


def as_helper(role: str, does: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function in which only nodes of this role do something."""
    return lambda ctx: does(ctx) if ctx.role == role else ctx.role


def wait_for_ever(ctx: Any) -> None:
    threading.Event().wait()


@pytest.mark.fault
def test_a_ps_that_never_returns_ends_when_the_workers_are_done(spark_gpus: "SparkSession") -> None:
    started = time.monotonic()
    result = ef.run(as_helper("ps", wait_for_ever), workers=2, ps=1, spark=spark_gpus, verbose=False)
    assert result.value == "chief"
    assert [report.role for report in result.reports] == ["chief", "worker", "ps"]
    assert time.monotonic() - started < 10


def look_once_more(ctx: Any) -> str:
    ctx.wait_until_over()
    ctx.report(step=7, accuracy=0.5)  # after training: the last evaluation still counts
    return "evaluated"


def test_an_evaluator_may_finish_after_the_others(spark_gpus: "SparkSession") -> None:
    fn = as_helper("evaluator", look_once_more)
    result = ef.run(fn, workers=2, evaluator=True, spark=spark_gpus, verbose=False)
    assert result.reports[2].value == "evaluated"
    assert [(metric.rank, metric.step, metric.values) for metric in result.metrics] == [
        (2, 7, {"accuracy": 0.5})
    ]


@pytest.mark.full
@pytest.mark.fault
def test_an_evaluator_that_never_returns_ends_at_its_limit(spark_gpus: "SparkSession") -> None:
    fn = as_helper("evaluator", wait_for_ever)
    started = time.monotonic()
    result = ef.run(fn, workers=2, evaluator=True, evaluator_timeout=1.0, spark=spark_gpus, verbose=False)
    assert result.value == "chief"
    assert [report.role for report in result.reports] == ["chief", "worker", "evaluator"]
    assert time.monotonic() - started < 10


@pytest.mark.fault
@pytest.mark.parametrize(("role", "rank"), [("ps", 2), ("evaluator", 3)])
def test_an_exception_of_a_helper_is_named_as_its_own(
    spark_gpus: "SparkSession", role: str, rank: int
) -> None:
    def fail(ctx: Any) -> None:
        raise ValueError(f"no {role}")

    def fn(ctx: Any) -> None:
        fail(ctx) if ctx.role == role else ctx.wait_until_over()

    with pytest.raises(NodeFailedError, match=f"ValueError: no {role}") as caught:
        ef.run(fn, workers=2, ps=1, evaluator=True, spark=spark_gpus, verbose=False)
    assert (caught.value.role, caught.value.rank) == (role, rank)


@pytest.mark.parametrize(
    ("asked", "error", "says"),
    [
        ({"workers": 2, "evaluator": True}, ClusterError, "3 task slots"),
        ({"workers": 1, "ps": 2}, ClusterError, "3 task slots"),
        ({"workers": 0, "ps": 1}, ConfigError, "Received: workers=0"),
        ({"workers": 1, "ps": "some"}, ConfigError, "Received: ps='some'"),
    ],
)
def test_roles_that_two_slots_cannot_seat_are_refused_in_seconds(
    spark_cluster: "SparkSession", asked: dict[str, Any], error: type[ef.EmberflowError], says: str
) -> None:
    started = time.monotonic()
    with pytest.raises(error, match=says) as caught:
        ef.run(who_i_am, **asked, spark=spark_cluster, verbose=False)
    assert "Fix: " in str(caught.value)
    assert time.monotonic() - started < 10


def test_auto_takes_all_slots(spark_cluster: "SparkSession") -> None:
    result = ef.run(lambda ctx: ctx.workers, workers="auto", ps="auto", spark=spark_cluster, verbose=False)
    assert [report.value for report in result.reports] == [2, 2]
