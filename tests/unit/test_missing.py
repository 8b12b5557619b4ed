"""Ranks that others wait for: asked what they do, named when that is no excuse, and waited for when it is."""

import threading
import time
from typing import Any

import pytest

from emberflow._driver.rendezvous import Rendezvous
from emberflow._plan import deadlines
from emberflow._task.node_state import STARTING, TAKING_ROWS, WAITING_FOR_ROWS, WORKING
from emberflow.errors import NodeLostError
from tests.unit.nodes import WITHIN, FakeNode
from tests.unit.test_attempt import ROWS, gang

LIMIT = 0.4


def bring(node: FakeNode, tag: str, value: Any) -> None:
    node.say({"gather": tag, "value": value, "of": 2 if tag.startswith("most") else None})


def test_a_rank_that_does_not_ask_for_rows_is_named_with_the_setting() -> None:
    with gang(exchange_timeout=LIMIT) as running:
        first, second = running.start(2)
        bring(first, "most-1", 4)
        assert second.channel.receive() == {"probe": True}
        second.say({"state": WORKING})
        threading.Thread(target=running.quit_all).start()
        error = running.error()
        assert isinstance(error, NodeLostError)
        assert (error.rank, error.host) == (1, "host-1")
        assert "others have waited 0.4 s (exchange_timeout) for it to ask for its next rows" in str(error)
        assert "exchange_timeout" in error.fix


@pytest.mark.parametrize("tag", ["most-1", "meet"])
def test_a_task_that_does_not_answer_is_named(tag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "ANSWER_TIMEOUT", 0.3)
    with gang(exchange_timeout=LIMIT) as running:
        first, _ = running.start(2)
        started = time.monotonic()
        bring(first, tag, {"endpoints": {}})
        threading.Thread(target=running.quit_all).start()
        error = running.error()
        assert isinstance(error, NodeLostError)
        assert error.rank == 1
        assert "its Spark task does not answer" in str(error)
        assert LIMIT < time.monotonic() - started < WITHIN / 2


@pytest.mark.parametrize("state", [STARTING, TAKING_ROWS, WAITING_FOR_ROWS])
def test_a_rank_that_has_no_rows_yet_is_waited_for(state: str, caplog: pytest.LogCaptureFixture) -> None:
    with gang(exchange_timeout=LIMIT) as running:
        first, second = running.start(2)
        bring(first, "most-1", 4)
        for _ in range(3):
            assert second.channel.receive() == {"probe": True}
            second.say({"state": state})
        bring(second, "most-1", 1)
        assert first.channel.receive() == {"gathered": "most-1", "values": [4, 1]}
        for node in (first, second):
            node.end()
        running.hear_the_end_of(first, second)
        running.spark_says(rows=ROWS)
        assert running.result.result(timeout=WITHIN) == ROWS
    assert f"worker 1 on host-1 is {state}; others have waited" in caplog.text


def test_who_is_missing_is_known_of_every_exchange_but_the_last() -> None:
    exchanges = Rendezvous(3)
    assert exchanges.bring(1, {"gather": "most-1", "value": 4, "of": 3}) == []
    ((tag, (since, absent)),) = exchanges.waiting().items()
    assert (tag, absent) == ("most-1", [0, 2])
    assert since <= time.monotonic()
    exchanges.bring(2, {"gather": "done", "value": None})
    assert {tag: absent for tag, (_, absent) in exchanges.waiting().items()} == {"most-1": [0]}
    ((ranks, answer),) = exchanges.bring(0, {"gather": "done", "value": None})
    assert (ranks, answer) == ([1], {"gathered": "most-1", "values": [4]})
    assert exchanges.waiting() == {}
