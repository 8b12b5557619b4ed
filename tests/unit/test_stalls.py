"""Ranks that others wait for: asked what they do, named when that is no excuse, and waited for when it is."""

import threading
import time
from typing import Any

import pytest

from emberflow._driver.events import JobRows
from emberflow._driver.rendezvous import Rendezvous
from emberflow._plan import deadlines
from emberflow._protocol.driver_messages import Gather, Gathered, Probe, ProbeAnswer, StartupFacts
from emberflow._protocol.node_state import NodeState
from emberflow._task.startup_exchange import STARTUP
from emberflow.errors import NodeLostError
from tests.unit.nodes import WITHIN, FakeNode
from tests.unit.test_attempt import ROWS, attempt_of

LIMIT = 0.4


def bring(node: FakeNode, tag: str, value: Any) -> None:
    node.say(StartupFacts({}) if tag == STARTUP else Gather(tag, value, of=2))


def test_a_rank_that_does_not_ask_for_rows_is_named_with_the_setting() -> None:
    with attempt_of(exchange_timeout=LIMIT) as running:
        first, second = running.start(2)
        bring(first, "steps-1", 4)
        assert second.channel.receive() == Probe()
        second.say(ProbeAnswer(NodeState.WORKING))
        threading.Thread(target=running.quit_all).start()
        error = running.error()
        assert isinstance(error, NodeLostError)
        assert (error.rank, error.host) == (1, "host-1")
        assert "others have waited 0.4 s (exchange_timeout) for it to ask for its next rows" in str(error)
        assert "exchange_timeout" in error.fix


@pytest.mark.parametrize("tag", ["steps-1", STARTUP])
def test_a_task_that_does_not_answer_is_named(tag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "ANSWER_TIMEOUT", 0.3)
    with attempt_of(exchange_timeout=LIMIT) as running:
        first, _ = running.start(2)
        started = time.monotonic()
        bring(first, tag, 4)
        threading.Thread(target=running.quit_all).start()
        error = running.error()
        assert isinstance(error, NodeLostError)
        assert error.rank == 1
        assert "its Spark task does not answer" in str(error)
        assert LIMIT < time.monotonic() - started < WITHIN / 2


@pytest.mark.parametrize("state", [state for state in NodeState if state.has_no_rows])
def test_a_rank_that_has_no_rows_yet_is_waited_for(
    state: NodeState, caplog: pytest.LogCaptureFixture
) -> None:
    with attempt_of(exchange_timeout=LIMIT) as running:
        first, second = running.start(2)
        bring(first, "steps-1", 4)
        for _ in range(3):
            assert second.channel.receive() == Probe()
            second.say(ProbeAnswer(state))
        bring(second, "steps-1", 1)
        assert first.channel.receive() == Gathered("steps-1", [4, 1])
        for node in (first, second):
            node.end()
        running.hear_the_end_of(first, second)
        running.spark_says(JobRows(ROWS))
        assert running.result.result(timeout=WITHIN) == ROWS
    assert f"worker 1 on host-1 is {state}; others have waited" in caplog.text


def test_who_is_missing_is_known_of_every_exchange_but_the_last() -> None:
    exchanges = Rendezvous(3)
    assert exchanges.bring(1, Gather("steps-1", 4, of=3)) == []
    ((tag, (since, absent)),) = exchanges.waiting().items()
    assert (tag, absent) == ("steps-1", [0, 2])
    assert since <= time.monotonic()
    exchanges.bring(2, Gather("done", None))
    assert {tag: absent for tag, (_, absent) in exchanges.waiting().items()} == {"steps-1": [0]}
    ((ranks, answer),) = exchanges.bring(0, Gather("done", None))
    assert (ranks, answer) == ([1], Gathered("steps-1", [4]))
    assert exchanges.waiting() == {}
