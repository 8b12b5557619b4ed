"""The curves as they are drawn: axes, marks, values that are not finite, zoom by fingers, long series."""

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from emberflow._record import events as e
from tests.unit.runs_simulated import planned, restarted, start, started, succeeded

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect
RED, AMBER = "#c92a2a", "#9a4f00"
MILLION_MILLIONS = 1e12


def reported(values: dict[int, float]) -> list[e.Event]:
    """Return a run whose chief has reported losses by step."""
    told = [
        e.MetricsReported(t=5.0 + step, rank=0, step=step, values={"loss": value})
        for step, value in values.items()
    ]
    return [started(), planned(2), *start(2), *told]


def vertical(texts: list[dict[str, Any]]) -> list[str]:
    """Return what is written at the left, from bottom to top."""
    right = min(each["right"] for each in texts)
    left = [each for each in texts if each["y"] < 210 and each["right"] < right + 60]
    return [each["text"] for each in sorted(left, key=lambda each: -each["y"])]


def horizontal(texts: list[dict[str, Any]]) -> list[str]:
    return [each["text"] for each in texts if each["y"] > 210]


def labels(texts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what is written beside marks."""
    return [each for each in texts if each["colour"] in (RED, AMBER)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({step: MILLION_MILLIONS / (step + 1) for step in range(9)}, "1.0 T"),
        ({step: 2.31 + step * 1e-6 for step in range(9)}, "2.310004"),
        ({step: 1e20 * (step + 1) for step in range(9)}, "2e20"),
        ({step: 1e-9 * (step + 1) for step in range(9)}, "2e-9"),
    ],
)
def test_labels_of_an_axis_are_whole_and_differ(
    page: "Page", page_of: Any, written: Any, values: dict[int, float], expected: str
) -> None:
    page.goto(page_of(reported(values)))
    texts = written()
    found = vertical(texts)
    assert expected in found
    assert len(set(found)) == len(found) >= 3
    assert min(each["left"] for each in texts) >= 0
    assert max(each["right"] for each in texts) <= page.locator(".chart canvas").evaluate(
        "(c) => c.clientWidth"
    )


def test_steps_have_no_fractions(page: "Page", page_of: Any, written: Any) -> None:
    page.goto(page_of(reported({step: 1.0 / (step + 1) for step in range(4)})))
    assert horizontal(written()) == ["0", "1", "2", "3"]


def test_a_single_point_is_in_the_middle_and_whole(page: "Page", page_of: Any, written: Any) -> None:
    page.goto(page_of(reported({85: 0.5})))
    assert horizontal(written()) == ["85"]
    canvas = page.locator(".chart canvas")
    [(left, right)] = canvas.evaluate(DOTS)
    assert 3 <= right - left <= 6  # a dot of 4.8 pixels
    assert 0.4 < left / canvas.evaluate("(canvas) => canvas.width") < 0.6


def test_dots_at_both_ends_are_whole(page: "Page", page_of: Any) -> None:
    page.goto(page_of(reported({0: 0.5, 1: 0.5, 2: 0.5})))
    found = [right - left for left, right in page.locator(".chart canvas").evaluate(DOTS)]
    assert len(found) == 3
    assert max(found) - min(found) <= 1


# Where dots stick out of a level line: the first and the last column of each, in the row just above the line.
DOTS = """(canvas) => {
    const { width, height } = canvas;
    const data = canvas.getContext('2d').getImageData(0, 0, width, height).data;
    const isEmber = (x, y) => {
        const [red, green, blue, alpha] = data.slice(4 * (y * width + x), 4 * (y * width + x) + 4);
        return red > 180 && green < 140 && blue < 90 && alpha > 60;
    };
    const rows = [...Array(height).keys()].map((y) => [...Array(width).keys()].filter((x) => isEmber(x, y)));
    const dots = rows.filter((row) => row.length && row.length < width / 4).sort((a, b) => b.length - a.length)[0];
    const starts = dots.filter((x) => !dots.includes(x - 1));
    const ends = dots.filter((x) => !dots.includes(x + 1));
    return starts.map((x, at) => [x, ends[at]]);
}"""


def test_a_loss_and_its_restart_have_labels_inside_the_plot(page: "Page", page_of: Any, written: Any) -> None:
    page.goto(page_of(restarted()))
    for chart in range(3):
        marks = labels(written(chart))
        assert [each["text"] for each in marks] == ["worker 1 lost, restart"]
    events = list(restarted())
    at = next(at for at, event in enumerate(events) if isinstance(event, e.AttemptFailed))
    page.goto(page_of(events[: at + 1]))  # at the right edge
    width = page.locator(".chart canvas").first.evaluate("(canvas) => canvas.clientWidth")
    for chart in range(3):
        marks = labels(written(chart))
        assert [each["text"] for each in marks] == ["worker 1 lost, restart"]
        assert marks[0]["left"] > 30
        assert marks[0]["right"] < width


def test_a_label_without_room_beside_its_marks_is_below_their_heads(
    page: "Page", page_of: Any, written: Any
) -> None:
    events = list(restarted())
    at = next(at for at, event in enumerate(events) if isinstance(event, e.NodeEnded))
    also = e.NodeEnded(t=29.6, rank=0, ending="raised", problem="PeerError: rank 1 is gone", host="host-0")
    page.goto(page_of([*events[: at + 1], also, *events[at + 1 :]]))
    for chart in range(3):
        (mark,) = labels(written(chart))
        assert mark["text"] == "worker 1 lost, chief 0 raised, restart"
        assert mark["y"] > 20  # heads of marks end at 12


def test_marks_that_are_apart_have_labels_that_do_not_cover_each_other(
    page: "Page", page_of: Any, written: Any
) -> None:
    lost = [
        e.NodeEnded(t=5.0 + step, rank=rank, ending="lost", problem="killed")
        for rank, step in ((1, 40), (2, 45), (3, 50), (4, 90))
    ]
    told = reported({step: 1.0 / (step + 1) for step in range(100)})[-100:]
    events = sorted([*told, *lost], key=lambda event: event.t)
    page.goto(page_of([started(), planned(5), *start(5), *events]))
    marks = labels(written())
    said = ", ".join(each["text"] for each in marks)
    assert [f"worker {rank} lost" for rank in range(1, 5) if f"worker {rank} lost" not in said] == []
    for row in {each["y"] for each in marks}:
        beside = sorted((each for each in marks if each["y"] == row), key=lambda each: each["left"])
        assert all(a["right"] < b["left"] for a, b in itertools.pairwise(beside))


@pytest.mark.parametrize("word", ["nan", "inf", "-inf", None])
def test_the_first_value_that_is_not_finite_is_marked_and_red(
    page: "Page", page_of: Any, written: Any, word: str | None
) -> None:
    points = [(step, 5.0 + step, None, 1.0 / (step + 1) if step < 20 else word) for step in range(30)]
    series = [{"attempt": 0, "rank": 0, "name": "loss", "points": points}]
    page.goto(page_of(reported({0: 1.0}), series=series))
    name = word or "nan"
    marks = labels(written())
    assert [(each["text"], each["colour"]) for each in marks] == [(name, RED)]
    twenty = next(each for each in written() if each["text"] == "20")
    assert abs(marks[0]["left"] - 9 - (twenty["left"] + twenty["right"]) / 2) < 2
    expect(page.locator(".tile.bad b")).to_have_text(name)
    expect(page.locator(".chart h3 .not-finite")).to_have_text(name)
    box = page.locator(".chart canvas").bounding_box()
    assert box is not None
    page.locator(".chart canvas").hover(position={"x": box["width"] - 20, "y": 80})
    expect(page.locator(".tip .not-finite")).to_have_text(name)


def test_a_long_series_is_thinned_evenly_and_keeps_both_ends(page: "Page", page_of: Any) -> None:
    points = [(step, step / 10, None, math.exp(-step / 1e5)) for step in range(90_000)]
    series = [{"attempt": 0, "rank": 0, "name": "loss", "points": points}]
    page.goto(page_of(reported({0: 1.0}), series=series))
    assert 5_000 < page.evaluate("emberflow.points()") <= 20_000
    expect(page.locator(".tile b").first).to_have_text("89,999")
    page.locator(".chart canvas").focus()
    for _ in range(26):
        page.keyboard.press("ArrowLeft")
    expect(page.locator(".tip")).to_contain_text("step 0training 1")


@pytest.fixture
def phone(browser: "Browser") -> "Iterator[Page]":
    """A page of a phone, with fingers."""
    context = browser.new_context(viewport={"width": 390, "height": 700}, has_touch=True, is_mobile=True)
    yield context.new_page()
    context.close()


def test_two_fingers_zoom_a_button_shows_all_and_one_finger_scrolls(
    phone: "Page", page_of: Any, tmp_path: Path
) -> None:
    phone.goto(page_of(succeeded()))
    canvas = phone.locator(".chart canvas").first
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    fingers = phone.context.new_cdp_session(phone)
    y, middle = box["y"] + 100, box["x"] + box["width"] / 2

    def touch(kind: str, *places: float, up: float = 0.0) -> None:
        points = [{"x": x, "y": y - up, "id": at} for at, x in enumerate(places)]
        fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    whole = phone.locator(".chart .show-all").first
    expect(whole).to_be_hidden()
    touch("touchStart", middle - 30)
    touch("touchStart", middle - 30, middle + 30)
    for far in range(40, 121, 10):
        touch("touchMove", middle - far, middle + far)
    touch("touchEnd")
    expect(phone.locator("#zoom-out")).to_be_enabled()
    expect(whole).to_be_visible()
    whole.tap()
    expect(phone.locator("#zoom-out")).to_be_disabled()
    expect(whole).to_be_hidden()
    before = phone.evaluate("scrollY")
    touch("touchStart", middle)
    for up in range(10, 150, 10):
        touch("touchMove", middle, up=up)
    touch("touchEnd")
    phone.wait_for_function("(before) => scrollY > before", arg=before)
    expect(phone.locator("#zoom-out")).to_be_disabled()
