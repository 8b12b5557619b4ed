"""The list of runs while one goes on: clicks, focus, long names; and the list inside a report."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from emberflow._record import events as e
from emberflow.page.server import PageServer
from tests.page.served import SeveralRuns
from tests.unit.runs_simulated import failed, planned, restarted, start, started, succeeded

if TYPE_CHECKING:
    from playwright.sync_api import Page

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect
LONG = "train_the_model_of_the_quarterly_forecast_of_all_the_regions"
FOCUSED = "(document.activeElement.closest('li') || document.activeElement).textContent"


@contextmanager
def listed(page: "Page") -> Iterator["Listed"]:
    """Serve a run that goes on and two that are over, one of them with a long name."""
    live = [started("11111111", at=time.time(), name="live"), planned(2), *start(2)]
    long = [replace(event, name=LONG) if isinstance(event, e.RunStarted) else event for event in succeeded()]
    runs = SeveralRuns(live, failed(), long)
    with PageServer(runs) as server:
        page.goto(server.url)
        page.wait_for_selector("#runs-list li", state="attached")
        yield Listed(page, runs)


class Listed:
    """The list, and what happens in the run that goes on."""

    def __init__(self, page: "Page", runs: SeveralRuns) -> None:
        self.page, self.runs, self.seconds = page, runs, 10

    def item(self, text: str) -> Any:
        return self.page.locator("#runs-list li", has_text=text)

    def update(self) -> None:
        """Have the run go on, and wait until the list has shown it."""
        self.seconds += 1
        step = e.MetricsReported(t=float(self.seconds), rank=0, step=self.seconds, values={"loss": 0.5})
        self.runs.tell("11111111", step)
        expect(self.item("live")).to_contain_text(f"{self.seconds} s")


def test_a_slow_click_chooses_a_run_while_another_goes_on(page: "Page") -> None:
    with listed(page) as found:
        for name, state in [("bad0bad0", "failed"), (LONG, "succeeded"), ("bad0bad0", "failed")]:
            box = found.item(name).get_by_role("button").bounding_box()
            page.mouse.move(box["x"] + 40, box["y"] + 12)
            page.mouse.down()
            found.update()  # the list changes between the press and the release
            page.mouse.up()
            expect(page.locator("#status")).to_have_attribute("data-state", state)


def test_the_focus_stays_in_the_list_and_in_the_table(page: "Page") -> None:
    with listed(page) as found:
        found.item(LONG).get_by_role("button").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#status")).to_have_attribute("data-state", "succeeded")
        found.update()
        assert LONG in page.evaluate(FOCUSED)
        box = found.item("bad0bad0").get_by_role("checkbox")
        box.focus()
        page.keyboard.press("Space")
        found.update()
        expect(box).to_be_focused()
        expect(box).to_be_checked()
        header = page.locator("#node-table th button").nth(3)
        header.focus()
        page.keyboard.press("Enter")
        expect(header).to_be_focused()
        expect(page.locator("#node-table th").nth(3)).to_have_attribute("aria-sort", "descending")
        expect(page.locator("th[aria-sort=none]")).to_have_count(8)
        chip = page.locator("#node-states button")
        chip.focus()
        page.keyboard.press("Enter")
        found.update()
        expect(chip).to_be_focused()
        expect(chip).to_have_attribute("aria-pressed", "true")


def test_a_chip_stays_while_it_filters_also_when_its_state_is_gone(page: "Page") -> None:
    with listed(page) as found:
        running = page.locator("#node-states button", has_text="running")
        running.focus()
        page.keyboard.press("Enter")
        ended = [e.NodeEnded(t=12.0, rank=rank, ending="returned") for rank in range(2)]
        found.runs.tell("11111111", *ended)
        expect(page.locator("#node-states")).to_contain_text("2 returned")
        expect(running).to_have_text("0 running")
        expect(running).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("#node-table tbody tr")).to_have_count(2)


@pytest.mark.parametrize("width", [1280, 390])
def test_a_long_name_breaks_neither_list_nor_page(page: "Page", width: int) -> None:
    assert len(LONG) == 60
    page.set_viewport_size({"width": width, "height": 800})
    with listed(page) as found:
        if width < 1000:
            page.locator("#runs-fold summary").click()
        found.item(LONG).get_by_role("button").click()
        expect(page.locator("#title")).to_have_text(LONG)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        inside = page.locator("#runs").evaluate("(list) => list.scrollWidth <= list.clientWidth")
        assert inside
        box, edge = (
            found.item(LONG).get_by_role("checkbox").bounding_box(),
            page.locator("#runs").bounding_box(),
        )
        assert edge is not None
        assert box["x"] + box["width"] < edge["x"] + edge["width"]


def test_the_output_filter_has_the_names_of_the_run_that_is_shown(page: "Page") -> None:
    tasks = tuple(e.PlannedNode(rank=rank, role="task", index=rank) for rank in range(2))
    parallel = [
        started("22222222", kind="parallel", name="search"),
        e.RunPlanned(t=0.1, nodes=tasks, plan={}),
        e.LinesPrinted(t=1.0, rank=0, text="trial 0"),
    ]
    one = [started("33333333"), planned(2), e.LinesPrinted(t=1.0, rank=0, text="epoch 1")]
    with PageServer(SeveralRuns(one, parallel)) as server:
        page.goto(server.url)
        options = page.locator("#log-node option")
        expect(options).to_have_text(["All nodes", "chief 0"])
        page.locator("#runs-list li", has_text="22222222").get_by_role("button").click()
        expect(options).to_have_text(["All tasks", "task 0"])


def test_a_report_of_two_runs_lists_both_and_shows_either(page: "Page", report_of: Any) -> None:
    page.goto(report_of(restarted(), succeeded()))
    names = page.locator("#runs-list small:first-of-type").all_text_contents()
    assert [name[:8] for name in names] == ["5e5e5e5e", "0a1b2c3d"]
    second = page.locator("#runs-list li", has_text="0a1b2c3d")
    expect(second.get_by_role("checkbox")).to_be_checked()
    second.get_by_role("button").click()
    expect(page.locator("#subtitle")).to_contain_text("0a1b2c3d")
    expect(page.locator("#status")).to_have_attribute("data-state", "succeeded")


def test_a_value_that_is_not_finite_is_red_in_the_list(page: "Page") -> None:
    class WithNan(SeveralRuns):
        def listed(self) -> list[dict[str, Any]]:
            return [each | {"metrics": {"loss": "nan"}} for each in super().listed()]

    with PageServer(WithNan(failed(), succeeded())) as server:
        page.goto(server.url)
        metric = page.locator("#runs-list li small.not-finite")
        expect(metric).to_have_text([" · loss nan", " · loss nan"])
        assert metric.first.evaluate("(each) => getComputedStyle(each).color") == "rgb(201, 42, 42)"


def test_the_best_value_of_parallel_tasks_is_listed_with_its_task(page: "Page") -> None:
    class WithBest(SeveralRuns):
        def listed(self) -> list[dict[str, Any]]:
            best = {"metrics": {"loss": 0.1}, "best_ranks": {"loss": 18}}
            return [each | best for each in super().listed()]

    with PageServer(WithBest(failed(), succeeded())) as server:
        page.goto(server.url)
        expect(page.locator("#runs-list small:last-of-type").first).to_have_text(" · loss 0.1 (task 18)")
