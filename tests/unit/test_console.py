"""What a person sees on standard error while a run goes on."""

import pytest

from emberflow._driver.console import Console
from emberflow._plan.roles import assign_roles
from emberflow.result import Metric

NODES = assign_roles(2)


def test_lines_have_their_node_in_front_and_keep_their_text(capfd: pytest.CaptureFixture[str]) -> None:
    with Console(NODES, verbose=True) as console:
        console.lines(1, "hello\n[bold]not markup[/bold]\nprogress\r")
        console.lines(0, "x" * 300)
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "[worker 1] hello",
        "[worker 1] [bold]not markup[/bold]",
        "[worker 1] progress",
        "[chief 0] " + "x" * 300,
    ]


def test_a_quiet_run_shows_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with Console(NODES, verbose=False) as console:
        console.lines(1, "hello")
        console.status("running")
        console.metric(Metric(rank=0, step=1, values={"loss": 0.5}, seconds=0.1))
    assert capfd.readouterr() == ("", "")


def test_a_flood_is_shown_at_speed(capfd: pytest.CaptureFixture[str]) -> None:
    line = "x" * 79
    with Console(NODES, verbose=True) as console:
        for _ in range(50):
            console.lines(1, "\n".join([line] * 800))
    assert capfd.readouterr().err.count("\n") == 40_000
