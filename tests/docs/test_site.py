"""The documentation site: it builds, every link leads somewhere, and no page needs a network."""

import html.parser
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class _Links(html.parser.HTMLParser):
    """What a page links to or loads, and the names in it that a link may lead to."""

    def __init__(self, page: pathlib.Path) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.targets: list[str] = []
        self.loaded: list[str] = []
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value}
        self.names |= {given[name] for name in ("id", "name") if name in given}
        targets = [given[name] for name in ("href", "src") if name in given]
        self.targets += targets
        if tag != "a":
            self.loaded += targets


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "zensical.toml", folder)
    (folder / "src").symlink_to(ROOT / "src")
    for command in (
        [sys.executable, str(ROOT / "scripts/site_pages.py"), "build/site-pages"],
        [str(pathlib.Path(sys.executable).parent / "zensical"), "build", "--strict"],
    ):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def test_every_link_leads_somewhere(site: pathlib.Path) -> None:
    pages = {page: _Links(page) for page in site.resolve().rglob("*.html")}
    broken = []
    for page, links in pages.items():
        for target in links.targets:
            place = urllib.parse.urlsplit(target)
            if place.scheme:
                continue
            start = (
                site.resolve() if place.path.startswith("/") else page.parent
            )  # 404.html is read from anywhere
            found = (start / urllib.parse.unquote(place.path.lstrip("/"))).resolve() if place.path else page
            name = urllib.parse.unquote(place.fragment)
            if not found.exists() or (name and found in pages and name not in pages[found].names):
                broken.append(f"{page.relative_to(site.resolve())}: {target}")
    assert not broken
    assert len(pages) > 50


def test_no_page_needs_a_network(site: pathlib.Path) -> None:
    loaded = {target for page in site.rglob("*.html") for target in _Links(page).loaded}
    assert not [target for target in loaded if urllib.parse.urlsplit(target).netloc]
    for sheet in site.rglob("*.css"):
        assert not re.findall(r"url\(['\"]?(?:https?:)?//[^)]*", sheet.read_text()), sheet


def test_the_navigation_has_every_page(site: pathlib.Path) -> None:
    listed = set(re.findall(r'"([\w/-]+\.md)"', (ROOT / "zensical.toml").read_text()))
    pages = site.parent / "build/site-pages"
    written = {page.relative_to(pages).as_posix() for page in pages.rglob("*.md")}
    assert {page for page in written if not page.startswith("source/")} == listed


def test_the_reference_has_every_public_name(site: pathlib.Path) -> None:
    import emberflow

    shown = {name for page in (site / "reference").glob("*.html") for name in _Links(page).names}
    missing = [name for name in emberflow.__all__ if not any(anchor.endswith(f".{name}") for anchor in shown)]
    assert missing == []
