"""A task of parallel runs reports to a driver that may not be there, and never waits for it."""

import contextlib
import dataclasses
import socket
import time
from typing import Any

import pytest

from emberflow._driver.events import Gone, Joined, NodeSent
from emberflow._driver.hub import Hub
from emberflow._plan import deadlines
from emberflow._protocol.driver_messages import LogLines, NodeReady
from emberflow._task.report_sender import WAITING, ReportSender
from emberflow._task.task_spec import TaskSpec
from tests.unit.nodes import outcome_of, plan_of

KEY = b"k" * 32
WITHIN = 10.0


def reports_to(port: int, task: int = 3) -> ReportSender:
    plan = dataclasses.replace(plan_of(1), driver_address=("127.0.0.1", port))
    return ReportSender(TaskSpec(plan=plan, key=KEY, fn=b""), task, "host-3", tasks=5)


def test_what_a_task_reports_arrives_in_order_with_its_number() -> None:
    with contextlib.closing(Hub("127.0.0.1", KEY, ranks=5, is_optional=True)) as hub:
        with contextlib.closing(reports_to(hub.port)) as reports:
            reports.send(NodeReady())
            reports.send(LogLines("one"))
        seen = [hub.events.get(timeout=WITHIN) for _ in range(4)]
    assert seen == [Joined(3, "host-3"), NodeSent(3, NodeReady()), NodeSent(3, LogLines("one")), Gone(3)]


@pytest.mark.fault
def test_a_driver_that_is_not_there_or_never_answers_costs_a_moment_at_the_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and says nothing
        reports = reports_to(silent.getsockname()[1])
        began = time.monotonic()
        for _ in range(10 * WAITING):
            reports.send(LogLines("x" * 1000))
        assert time.monotonic() - began < 1
        assert reports._waiting.qsize() == WAITING
        reports.send(outcome_of(0))
        assert reports._waiting.qsize() == WAITING + 1
        reports.close()
        assert time.monotonic() - began < deadlines.REPORTS_END_TIMEOUT + 2


@pytest.mark.fault
def test_after_the_connection_has_broken_nothing_is_kept() -> None:
    hub = Hub("127.0.0.1", KEY, ranks=5, is_optional=True)
    reports = reports_to(hub.port)
    assert hub.events.get(timeout=WITHIN) == Joined(3, "host-3")
    hub.close()
    end = time.monotonic() + WITHIN
    while not reports._is_over and time.monotonic() < end:
        reports.send(LogLines("more"))
    left: Any = reports._waiting.qsize()
    reports.send(LogLines("more"))
    assert reports._waiting.qsize() == left
    reports.close()
