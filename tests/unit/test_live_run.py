"""A live cluster on the driver, with nodes that are only told of."""

from types import SimpleNamespace
from typing import Any

import pytest

from emberflow._driver.cluster_facts import ClusterFacts
from emberflow._driver.live_run import LiveRun, _Listener
from emberflow._protocol.codec import Message
from emberflow._protocol.live_messages import FeedOpened, FeedsEnd
from emberflow.config import RunConfig
from emberflow.errors import ClusterError
from tests.unit.nodes import KEY, plan_of

ENDPOINTS = [{"feed": f"127.0.0.1:{port}", "jvm": "1"} for port in (4000, 4001)]


def run_and_parts() -> tuple[list[Message], LiveRun, Any]:
    """Return what nodes are told, a run, and the parts of its attempt."""
    plan, told = plan_of(2, is_live=True), []
    spark: Any = None
    run = LiveRun(spark, spark, plan, RunConfig(workers=2, verbose=False), ClusterFacts(is_connect=False))
    hub = SimpleNamespace(send=lambda _, message: told.append(message), broadcast=told.append)
    return told, run, SimpleNamespace(hub=hub, plan=plan, key=KEY)


def up_after(stops: list[float | None]) -> tuple[list[Message], Any]:
    """Return what nodes are told that come up after these calls to stop, and their feeds."""
    told, run, parts = run_and_parts()
    for timeout in stops:
        run._ask_to_stop(timeout)
    return told, run.on_up(parts, ENDPOINTS)


def test_nodes_that_come_up_are_not_stopped() -> None:
    told, _ = up_after([])
    assert told == []


def test_nodes_that_come_up_after_the_cluster_was_stopped_are_told_once_that_their_feeds_end() -> None:
    told, feeding = up_after([60.0])
    assert told == [FeedsEnd()]
    with pytest.raises(ClusterError, match="it was stopped"):
        feeding.train(None)


def test_a_function_that_returns_before_the_cluster_is_up_is_not_waited_for() -> None:
    _, run, parts = run_and_parts()
    listener = _Listener(run, parts)
    listener.on_returned(1)
    listener.on_message(0, FeedOpened("rounds", ""))
    listener.on_up(ENDPOINTS)
    with pytest.raises(ClusterError, match="it has returned on rank 1"):
        run.feeding()._rounds.train(None, 1)  # type: ignore[arg-type]
