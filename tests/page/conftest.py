"""A real browser, and pages of runs that never happened."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """The Chromium of this machine, without a window."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    with playwright.sync_playwright() as playing:
        opened = playing.chromium.launch(executable_path=program, args=list(FLAGS))
        yield opened
        opened.close()


@pytest.fixture
def page(browser: "Browser") -> "Iterator[Page]":
    """An empty page of 1280 pixels; an error of its scripts, or a refused resource, fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    errors: list[Any] = []
    opened = context.new_page()
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("console", lambda said: errors.append(said.text) if "Content Security" in said.text else None)
    yield opened
    context.close()
    assert errors == []


@pytest.fixture
def report_of(tmp_path: Path) -> Any:
    """Return a function that writes the report of some runs, and returns its address."""
    from emberflow._record.run_state import fold
    from emberflow.page.report import write_report

    def write(*runs: Any) -> str:
        path = tmp_path / "report.html"
        write_report([fold(events) for events in runs], str(path))
        return path.as_uri()

    return write


@pytest.fixture
def page_of(tmp_path: Path) -> Any:
    """Return a function that writes the page of a run that goes on; it takes facts of the run as a whole as well."""
    from emberflow._record.run_state import fold
    from emberflow.page import html

    def write(events: Any, series: Any = None, **head: Any) -> str:
        change = fold(events).changes()
        change["head"] |= head
        change["series"] = series or change["series"]
        path = tmp_path / "page.html"
        path.write_text(html.report([change]))
        return path.as_uri()

    return write


@pytest.fixture
def written(page: "Page") -> Any:
    """Return a function that tells what is written on a chart: text, left, right, bottom and colour of each."""
    page.add_init_script(WRITING)

    def read(chart: int = 0) -> list[dict[str, Any]]:
        page.wait_for_selector(".chart canvas")
        found: list[dict[str, Any]] = page.evaluate("(chart) => textsOf(chart)", chart)
        return found

    return read


WRITING = """
    const all = [];
    const { fillText, clearRect } = CanvasRenderingContext2D.prototype;
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
        const width = this.measureText(text).width;
        const left = x - { left: 0, center: width / 2, right: width }[this.textAlign];
        all.push({ canvas: this.canvas, text, left, right: left + width, y, colour: this.fillStyle });
        fillText.call(this, text, x, y);
    };
    CanvasRenderingContext2D.prototype.clearRect = function (...box) {
        for (let at = all.length - 1; at >= 0; at--) if (all[at].canvas === this.canvas) all.splice(at, 1);
        clearRect.apply(this, box);
    };
    window.textsOf = (chart) => {
        const wanted = document.querySelectorAll(".chart canvas")[chart];
        return all.filter((each) => each.canvas === wanted).map(({ canvas, ...rest }) => rest);
    };
"""
