"""A live cluster on the driver, with nodes that are only told of."""

from types import SimpleNamespace
from typing import Any

import pytest

from emberflow._driver.cluster_facts import ClusterFacts
from emberflow._driver.live_run import LiveRun
from emberflow._protocol.codec import Message
from emberflow._protocol.live_messages import FeedsEnd
from emberflow.config import RunConfig
from emberflow.errors import ClusterError
from tests.unit.nodes import KEY, plan_of

ENDPOINTS = [{"feed": f"127.0.0.1:{port}", "jvm": "1"} for port in (4000, 4001)]


def up_after(stops: list[float | None]) -> tuple[list[Message], Any]:
    """Return what nodes are told that come up after these calls to stop, and their feeds."""
    plan, told = plan_of(2, is_live=True), []
    spark: Any = None
    run = LiveRun(spark, spark, plan, RunConfig(workers=2, verbose=False), ClusterFacts(is_connect=False))
    for timeout in stops:
        run._ask_to_stop(timeout)
    hub = SimpleNamespace(send=lambda _, message: told.append(message), broadcast=told.append)
    parts: Any = SimpleNamespace(hub=hub, plan=plan, key=KEY)
    return told, run.on_up(parts, ENDPOINTS)


def test_nodes_that_come_up_are_not_stopped() -> None:
    told, _ = up_after([])
    assert told == []


def test_nodes_that_come_up_after_the_cluster_was_stopped_are_told_once_that_their_feeds_end() -> None:
    told, feeding = up_after([60.0])
    assert told == [FeedsEnd()]
    with pytest.raises(ClusterError, match="it was stopped"):
        feeding.train(None)
