"""The page in a real browser, from a file: what it shows, how it is used, at 1280 and at 390 pixels."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from emberflow.page import html
from tests.unit.runs_simulated import failed, restarted, succeeded

if TYPE_CHECKING:
    from playwright.sync_api import Page

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect
NARROW = 390


def texts(page: "Page", selector: str) -> list[str]:
    return page.locator(selector).all_text_contents()


def test_a_run_is_shown_with_its_start_nodes_curves_and_output(page: "Page", report_of: Any) -> None:
    page.goto(report_of(succeeded()))
    assert page.title() == "train: succeeded · Emberflow"
    assert "0a1b2c3d" in page.locator("#subtitle").inner_text()
    assert texts(page, ".phase-names b") == ["0.4 s", "0.1 s", "1.5 s", "1.0 s", "1.0 s", "0.3 s"]
    assert texts(page, "#node-table tbody tr td:first-child") == ["chief 0", "worker 1"]
    assert "1.6 GB" in page.locator("#node-table tbody tr").first.inner_text()
    labels = [chart.get_attribute("aria-label") or "" for chart in page.locator(".chart canvas").all()]
    assert labels[0].startswith("loss: training 0.1")
    assert "validation" in labels[0]
    assert page.locator("#failure").is_hidden()


def test_text_of_a_log_is_text(page: "Page", report_of: Any) -> None:
    page.goto(report_of(succeeded()))
    assert "<script>document.title='gotcha'</script>" in page.locator("#log-lines").inner_text()
    assert page.title() != "gotcha"
    assert page.locator("#log-lines script").count() == 0


def test_a_failure_is_on_top_with_the_traceback_and_what_to_do(page: "Page", report_of: Any) -> None:
    page.goto(report_of(failed()))
    card = page.locator("#failure")
    assert "ValueError: loss is nan <b>here</b>" in card.inner_text()
    assert "What to do: Correct the function" in card.inner_text()
    box, tiles = card.bounding_box(), page.locator("#tiles").bounding_box()
    assert box is not None
    assert tiles is not None
    assert box["y"] < tiles["y"]
    assert page.locator("#status").get_attribute("data-state") == "failed"
    first = page.locator("#node-table tbody tr").first
    assert "worker 1" in first.inner_text()
    assert "bad" in (first.get_attribute("class") or "")


def test_losses_and_restarts_are_marked_on_the_curves(page: "Page", report_of: Any) -> None:
    page.goto(report_of(restarted()))
    canvas = page.locator(".chart canvas").first
    box = canvas.bounding_box()
    assert box is not None
    where = page.evaluate(
        """() => {
            const canvas = document.querySelector('.chart canvas');
            const pen = canvas.getContext('2d');
            const row = pen.getImageData(0, 8 * devicePixelRatio, canvas.width, 1).data;
            for (let x = 0; x < canvas.width; x++) if (row[4 * x + 3] > 200) return x / devicePixelRatio;
            return null;
        }"""
    )
    assert where is not None
    canvas.hover(position={"x": where + 3, "y": box["height"] / 2})
    assert "SIGKILL" in page.locator(".tip").first.inner_text()
    assert "Restarts" in page.locator("#tiles").inner_text()


def test_the_axis_the_scale_and_the_zoom_are_chosen_by_mouse_or_keyboard(
    page: "Page", report_of: Any
) -> None:
    page.goto(report_of(succeeded()))
    pressed = "#axis button[aria-pressed=true]"
    page.get_by_role("button", name="Time").click()
    assert texts(page, pressed) == ["Time"]
    page.keyboard.press("e")
    assert texts(page, pressed) == ["Epoch"]
    page.keyboard.press("s")
    page.keyboard.press("l")
    assert page.locator("#log-scale").get_attribute("aria-pressed") == "true"
    box = page.locator(".chart canvas").first.bounding_box()
    assert box is not None
    middle = box["y"] + 100
    page.mouse.move(box["x"] + 120, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 260, middle, steps=4)
    page.mouse.up()
    assert page.locator("#zoom-out").is_enabled()
    page.keyboard.press("0")
    expect(page.locator("#zoom-out")).to_be_disabled()
    page.locator(".chart canvas").first.focus()
    page.keyboard.press("ArrowRight")
    assert "step" in page.locator(".tip").first.inner_text()


def test_a_curve_is_looked_at_and_zoomed_by_keys_alone(page: "Page", report_of: Any) -> None:
    page.goto(report_of(succeeded()))
    canvas = page.locator(".chart canvas").first
    canvas.focus()
    page.keyboard.press("ArrowRight")
    middle = step_shown(page)
    page.keyboard.press("+")
    expect(page.locator("#zoom-out")).to_be_enabled()
    for _ in range(60):  # beyond the right edge of what was zoomed to
        page.keyboard.press("ArrowRight")
    assert step_shown(page) > 1.6 * middle
    page.keyboard.press("Escape")
    expect(page.locator("#zoom-out")).to_be_disabled()


def step_shown(page: "Page") -> int:
    """Return the step at the crosshair."""
    found = re.search(r"step ([\d,]+)", page.locator(".tip").first.inner_text())
    assert found is not None
    return int(found[1].replace(",", ""))


def test_lines_are_filtered_by_node_and_by_words(page: "Page", report_of: Any) -> None:
    page.goto(report_of(failed()))
    page.keyboard.press("/")
    page.keyboard.type("NAN")
    assert texts(page, "#log-lines .text") == ["step 39  loss nan"]
    page.locator("#log-filter").fill("nothing of this kind")
    assert "No line fits" in page.locator("#log-lines").inner_text()


def test_the_curves_of_two_runs_are_drawn_together(page: "Page", report_of: Any) -> None:
    page.goto(report_of(restarted(), succeeded()))
    assert texts(page, "#legend li") == ["train 5e5e5e5e", "train 0a1b2c3d"]
    label = page.locator(".chart canvas").first.get_attribute("aria-label") or ""
    assert "train 5e5e" in label
    assert "train 0a1b" in label


def test_the_run_that_is_shown_is_on_top_of_those_beside_it_and_its_charts_are_level(
    page: "Page", report_of: Any
) -> None:
    page.set_viewport_size({"width": 1500, "height": 900})  # room for three charts beside the list
    page.goto(report_of(succeeded(), restarted()))  # the same curve, as far as both go
    page.wait_for_selector(".chart canvas")
    own = page.evaluate(
        """() => {
            const canvas = document.querySelector('.chart canvas');
            const data = canvas.getContext('2d').getImageData(0, 20, canvas.width / 3, canvas.height - 60).data;
            let found = 0;
            for (let at = 0; at < data.length; at += 4) {
                const [red, green, blue] = data.slice(at, at + 3);
                if (Math.abs(red - 0xe0) + Math.abs(green - 0x52) + Math.abs(blue - 0x0a) < 30) found++;
            }
            return found;
        }"""
    )
    assert own > 100
    tops = [box["y"] for each in page.locator(".chart canvas").all() if (box := each.bounding_box())]
    assert len(tops) == 3
    assert max(tops) - min(tops) < 1


@pytest.mark.parametrize("run", [succeeded, restarted, failed])
def test_nothing_is_wider_than_a_phone(page: "Page", report_of: Any, run: Any) -> None:
    page.set_viewport_size({"width": NARROW, "height": 800})
    page.goto(report_of(run()))
    assert page.evaluate("document.documentElement.scrollWidth") == NARROW
    assert page.locator("#node-table tbody tr").first.is_visible()


def test_light_and_dark_follow_the_system_and_the_button(page: "Page", report_of: Any) -> None:
    page.goto(report_of(succeeded()))
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate(background) != light
    page.keyboard.press("t")
    assert page.evaluate(background) == light


def test_a_report_asks_nobody_for_anything(page: "Page", report_of: Any) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report_of(succeeded()))
    page.wait_for_selector("#node-table tbody tr")
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


def test_the_files_of_the_page_name_no_other_host() -> None:
    text = html.document()
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text) == []
    assert all(Path(html.FILES, name).read_text().count("\n") <= 300 for name in html.SCRIPTS)


def test_data_cannot_end_the_script_that_holds_it() -> None:
    text = html.report([{"text": "</script><script>alert(1)</script>"}])
    assert "</script><script>alert" not in text
    held = re.search(r'<script id="data" type="application/json">(.*?)</script>', text)
    assert held is not None
    assert json.loads(held[1])["data"][0]["text"] == "</script><script>alert(1)</script>"
