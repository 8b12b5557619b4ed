"""How a session ended, as Py4J shows it."""

from types import SimpleNamespace
from typing import Any

import pytest

from emberflow._driver.session_state import how_ended


def session(context: Any) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(_jsc=context))


def java_context(is_stopped: bool) -> Any:
    return SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: is_stopped))


class WithoutJvm:
    def sc(self) -> Any:
        raise ConnectionRefusedError


@pytest.mark.parametrize(
    ("context", "how"),
    [
        (java_context(is_stopped=False), ""),
        (java_context(is_stopped=True), "was stopped"),
        (None, "was stopped"),
        (WithoutJvm(), "lost its JVM on the driver"),
    ],
)
def test_a_session_that_runs_was_stopped_or_has_no_jvm(context: Any, how: str) -> None:
    assert how_ended(session(context)) == how
