"""A call repeated on a thread: until the block ends, once more where asked, and never at the block's expense."""

import threading
from typing import Any

import pytest

from emberflow._driver.console import Console
from emberflow._driver.node_reports import NodeReports
from emberflow._node.rows_taken import _Teller, rows_told
from emberflow._record.events import PlannedNode, RunPlanned
from emberflow._record.recorder import Recorder
from emberflow._repeating import repeated
from emberflow._task.metric_log import MetricLog
from tests.unit.nodes import plan_of

WITHIN = 10.0


@pytest.mark.parametrize("at_end", [False, True])
def test_it_is_called_until_the_block_ends_and_once_more_where_asked(at_end: bool) -> None:
    called: list[str] = []
    often = threading.Event()

    def call() -> None:
        called.append(threading.current_thread().name)
        if len(called) == 3:
            often.set()

    with repeated(call, 0.001, "emberflow-test", at_end=at_end):
        assert often.wait(WITHIN)
    count = len(called)
    assert set(called) == {"emberflow-test"}
    assert not [each for each in threading.enumerate() if each.name == "emberflow-test"]
    with repeated(call, 1000.0, "emberflow-test", at_end=at_end):
        pass
    assert len(called) - count == at_end


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_ends_the_calls_and_not_the_block() -> None:
    called = threading.Event()

    def call() -> None:
        called.set()
        raise ValueError("not yours")

    with repeated(call, 0.001, "emberflow-test"):
        assert called.wait(WITHIN)


class Rows:
    """Stands for the feed of a node that has taken ten rows."""

    names = ("train",)

    def progress(self) -> dict[str, dict[str, Any]]:
        return {"train": {"rows": 10, "waiting_for": "sink"}}


class Epochs(Rows):
    """Stands for the feed of a node that validates after each epoch, which takes as long as many intervals."""

    names = ("train", "validation")

    def __init__(self) -> None:
        self.rows = {"train": 0, "validation": 0}

    def progress(self) -> dict[str, dict[str, Any]]:
        return {name: {"rows": rows, "waiting_for": "sink"} for name, rows in self.rows.items()}


def test_rows_of_a_node_never_go_down_while_it_validates() -> None:
    feed: Any = Epochs()
    recorder = Recorder()
    recorder.emit(RunPlanned, nodes=(PlannedNode(rank=0, role="chief", index=0),))
    reports = NodeReports(plan_of(1), Console(plan_of(1).nodes, verbose=False), MetricLog(), recorder)
    teller = _Teller(feed, lambda message: reports.on_message(0, message))
    seen = []
    for name, rows in [("train", 600), ("train", 400), ("validation", 100), ("validation", 100)] * 2:
        feed.rows[name] += rows
        teller.tell()
        seen.append((recorder.state.nodes[0].rows, recorder.state.nodes[0].rows_per_second > 0))
    expected = [600, 1000, 1000, 1000, 1600, 2000, 2000, 2000]
    assert seen == [(rows, True) for rows in expected]


def test_rows_are_told_at_the_end_and_a_lost_connection_does_not_reach_your_function() -> None:
    told: list[Any] = []
    feed: Any = Rows()
    with rows_told(feed, told.append, plan_of(2)):
        assert told == []  # the interval is longer than this block
    assert told[0].datasets["train"]["rows"] == 10
    asked = []

    def broken(message: Any) -> None:
        asked.append(message)
        raise BrokenPipeError

    with rows_told(feed, broken, plan_of(2)):
        pass
    assert len(asked) == 1
