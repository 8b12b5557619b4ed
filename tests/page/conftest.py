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
