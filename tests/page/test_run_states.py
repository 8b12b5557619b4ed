"""What the page says of a run that was cut, waits, was started again, or has many tasks."""

import time
from typing import TYPE_CHECKING, Any

import pytest

from emberflow._record import events as e
from emberflow.page.server import PageServer
from tests.page.served import SeveralRuns
from tests.unit.runs_simulated import failed, planned, restarted, start, started, succeeded, training

if TYPE_CHECKING:
    from playwright.sync_api import Page

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect
WAITING = "waits for 2 task slots; run mnist 3f2a holds 2"


def tile(page: "Page", label: str) -> Any:
    return page.locator(".tile", has=page.locator(f"span:text-is('{label}')"))


def search(tasks: int) -> list[e.Event]:
    """Return a parallel run whose tasks report a loss, the later ones a lower one."""
    nodes = tuple(e.PlannedNode(rank=rank, role="task", index=rank) for rank in range(tasks))
    found: list[e.Event] = [
        started(kind="parallel", name="search"),
        e.RunPlanned(t=0.1, nodes=nodes, plan={}),
    ]
    for rank in range(tasks):
        found += [e.NodeJoined(t=1.0, rank=rank, host="host-1"), e.NodeReady(t=1.0, rank=rank)]
        for step in range(10):
            values = {"loss": (tasks - rank) / (step + 1)}
            found.append(e.MetricsReported(t=2.0 + step, rank=rank, step=step, values=values))
    return found


def test_a_cut_run_stands_still_and_says_so(page: "Page") -> None:
    page.clock.install()
    with PageServer(SeveralRuns(restarted())) as server:
        page.goto(server.url)
        status = page.locator("#status")
        expect(status).to_have_attribute("data-state", "cut")
        shown = status.inner_text()
        page.clock.fast_forward(60_000)
        page.clock.run_for(2000)
        assert status.inner_text() == shown
    notice = page.locator("#cut")
    expect(notice).to_contain_text("The record ends here: its driver was killed or lost its storage.")
    expect(notice).to_contain_text("Last sign of life")
    expect(notice).to_contain_text("58 s after the start")
    expect(page.locator("#node-states")).to_have_text("2 unknown")
    expect(page.locator("#node-table .state")).to_have_text(["unknown", "unknown"])
    expect(tile(page, "Nodes")).to_contain_text("state unknown")
    colours = page.locator("#bar i").evaluate("(bar) => getComputedStyle(bar).backgroundColor")
    assert colours == page.locator("#status").evaluate("(pill) => getComputedStyle(pill).color")


def test_a_run_that_goes_on_counts_its_seconds(page: "Page") -> None:
    page.clock.install()
    runs = SeveralRuns([started(at=time.time()), planned(2), *start(2)])
    with PageServer(runs) as server:
        page.goto(server.url)
        expect(page.locator("#status")).to_have_attribute("data-state", "running")
        page.clock.fast_forward(120_000)
        page.clock.run_for(2000)
        expect(page.locator("#status")).to_contain_text("2 min")
    expect(page.locator("#cut")).to_be_hidden()


def test_after_a_restart_the_step_is_that_of_the_newest_attempt(page: "Page", page_of: Any) -> None:
    def steps(numbers: range, t: float) -> list[e.Event]:
        return [
            e.MetricsReported(t=t + step, rank=0, step=step, values={"loss": 1.0 / step}) for step in numbers
        ]

    lost = e.AttemptFailed(t=80.0, attempt=0, problem="Worker 1 was lost", rank=1, is_restarted=True)
    before = [started(), planned(2), *start(2), *steps(range(1, 71), 5.0), lost]
    other = e.MetricsReported(t=200.0, rank=1, step=99, values={"loss": 9.0})
    page.goto(page_of([*before, *start(2, attempt=1, t=81.0), *steps(range(1, 45), 90.0), other]))
    expect(tile(page, "Step").locator("b")).to_have_text("44")
    expect(tile(page, "loss").locator("b")).to_have_text("0.02273")


def test_trained_names_epoch_and_step_of_the_newest_attempt(page: "Page", page_of: Any) -> None:
    lost = e.AttemptFailed(t=80.0, attempt=0, problem="Worker 1 was lost", rank=1, is_restarted=True)
    before = [started(), planned(2), *start(2), *training(2, range(250), t=4.2), lost]
    page.goto(page_of([*before, *start(2, attempt=1, t=81.0), *training(2, range(100, 140), t=90.0)]))
    expect(tile(page, "Trained").locator("small")).to_have_text("epoch 2, step 139")


def test_a_parallel_run_names_its_tasks_and_the_best_one(page: "Page", page_of: Any) -> None:
    page.goto(page_of(search(3), best=[{"name": "loss", "value": 0.1, "rank": 2}]))
    expect(page.locator("#legend li")).to_have_text(["task 0", "task 1", "task 2"])
    colours = page.locator("#legend i").evaluate_all("(all) => all.map((each) => each.style.background)")
    assert len(set(colours)) == 3
    expect(tile(page, "loss")).to_contain_text("0.1")
    expect(tile(page, "loss")).to_contain_text("best: task 2")
    expect(page.locator(".chart h3")).to_have_text("lossbest task 2 0.1")
    expect(page.locator("#drawn")).to_be_hidden()
    shown = page.locator("body").inner_text()
    assert "node" not in shown.lower()
    expect(page.locator("#subtitle")).to_contain_text("3 tasks")
    expect(page.locator("#nodes-title")).to_have_text("Tasks")


def test_of_many_tasks_the_best_and_the_first_are_drawn_and_that_is_said(page: "Page", page_of: Any) -> None:
    page.goto(page_of(search(20), best=[{"name": "loss", "value": 0.1, "rank": 19}]))
    expect(page.locator("#drawn")).to_have_text("16 of 20 tasks are drawn: the best and the first")
    names = page.locator("#legend li").all_text_contents()
    assert names == [*(f"task {rank}" for rank in range(15)), "task 19"]


def test_pointing_at_a_line_names_its_task(page: "Page", page_of: Any) -> None:
    page.goto(page_of(search(8), best=[]))
    canvas = page.locator(".chart canvas")
    box = canvas.bounding_box()
    assert box is not None
    canvas.hover(position={"x": 60, "y": 30})  # at the top left: the highest loss
    expect(page.locator(".tip .near")).to_have_text("task 0 8")
    canvas.hover(position={"x": box["width"] - 14, "y": box["height"] - 30})
    expect(page.locator(".tip .near")).to_have_text("task 7 0.1")


def test_a_run_that_waits_says_for_what_from_the_beginning(page: "Page", page_of: Any) -> None:
    page.goto(page_of([started()], waiting=WAITING))
    expect(page.locator("#timeline .now")).to_contain_text("waiting for slots")
    expect(page.locator("#timeline .reason")).to_have_text("W" + WAITING[1:])
    expect(page.locator("#no-nodes")).to_contain_text("No nodes yet")
    expect(page.locator("#node-table")).to_be_hidden()
    page.goto(page_of([started()]))
    expect(page.locator("#timeline .now")).to_contain_text("planning")
    page.goto(page_of([started(), planned(2)], waiting=WAITING))
    expect(page.locator("#timeline .now")).to_contain_text("waiting for slots")
    expect(page.locator("#no-nodes")).to_be_hidden()


def test_the_phase_of_slots_is_one_of_the_start_and_older_records_do_without(
    page: "Page", page_of: Any
) -> None:
    phases = [{"attempt": 0, "name": "planned", "t": 0.1}, {"attempt": 0, "name": "slots", "t": 2.1}]
    page.goto(page_of([started(), planned(2)], phases=phases))
    expect(page.locator(".phase-names li")).to_have_text(["planned 0.1 s", "slots 2.0 s"])
    expect(page.locator("#timeline .now")).to_contain_text("waiting for executors")
    page.goto(page_of(succeeded(), phases=[{"attempt": 0, "name": "planned", "t": 0.1}]))
    expect(page.locator(".phase-names li")).to_have_text(["planned 0.1 s"])
    expect(page.locator("#timeline .now")).to_have_count(0)


def test_after_the_end_nobody_waits_and_empty_columns_are_left_out(page: "Page", page_of: Any) -> None:
    heads = page.locator("#node-table th:visible")
    page.goto(page_of([started(), planned(2), *start(2), *training(2, range(5), t=4.2)]))
    expect(heads).to_have_text(["Node", "Host", "State", "Rows", "Rows/s", "Waits for", "Memory", "Cores"])
    page.goto(page_of(failed()))
    expect(heads).to_have_text(["Node", "Host", "State", "Rows", "Rows/s", "Memory", "Cores"])
    assert "training" not in page.locator("#node-table tbody").inner_text()
    page.goto(page_of([started(), planned(2)]))
    expect(heads).to_have_text(["Node", "Host", "State"])
