"""Text that can be read: at least 4.5:1 against what is behind it, in light and in dark."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from emberflow.page import html
from tests.unit.runs_simulated import failed, restarted

if TYPE_CHECKING:
    from playwright.sync_api import Page

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect
LEAST = 4.5
SOFT = {"ember-ink": "ember-soft", "green": "green-soft", "red": "red-soft", "amber": "amber-soft"}
PAIRS = [
    *(
        (text, behind)
        for text in ("ink", "soft", "faint", "red", "ember-ink")
        for behind in ("card", "raised")
    ),
    *((text, "page") for text in ("ink", "soft", "faint", "ember-ink")),
    *SOFT.items(),
    *(("soft", behind) for behind in SOFT.values()),
    ("amber", "card"),  # the label of a restart, on the canvas
    ("ink", "line"),  # of the stripes while the start waits
    ("ink", "amber-soft"),
    *(("on-phase", f"phase-{number}") for number in range(1, 7)),
]


def variables(scheme: str) -> dict[str, str]:
    """Return the colours of the page's styles."""
    light, dark = re.findall(
        r"^:root[^{]*\{(.*?)\}", Path(html.FILES, "run.css").read_text(), re.DOTALL | re.MULTILINE
    )[:2]
    found = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", light))
    return found | (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", dark)) if scheme == "dark" else {})


def brightness(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def ratio(one: str, other: str) -> float:
    dark, bright = sorted([brightness(one), brightness(other)])
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_colours_of_text_can_be_read_on_those_behind_them(scheme: str) -> None:
    known = variables(scheme)
    found = {pair: ratio(known[pair[0]], known[pair[1]]) for pair in PAIRS}
    assert {pair: round(each, 2) for pair, each in found.items() if each < LEAST} == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("run", [failed, restarted])
def test_no_text_of_the_page_is_too_pale(page: "Page", report_of: Any, run: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # a literal of two
    page.goto(report_of(run()))
    page.locator("#details summary").click()
    expect(page.locator("#facts")).to_contain_text("data_parallel")
    pairs = page.evaluate(
        """() => {
            const two = (number) => Number(number).toString(16).padStart(2, '0');
            const hex = (text) => '#' + text.match(/\\d+/g).slice(0, 3).map(two).join('');
            const isClear = (text) => text === 'rgba(0, 0, 0, 0)';
            const found = {};
            for (const each of document.querySelectorAll('body *')) {
                const own = [...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
                const isGradient = each.closest('.failure, .now');
                if (!own || isGradient || !each.checkVisibility()) continue;
                let behind = each;
                while (isClear(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
                const pair = hex(getComputedStyle(each).color) + ' ' + hex(getComputedStyle(behind).backgroundColor);
                found[pair] = each.outerHTML.slice(0, 80);
            }
            return found;
        }"""
    )
    assert len(pairs) > 10
    pale = {pair: where for pair, where in pairs.items() if ratio(*pair.split()) < LEAST}
    assert pale == {}
