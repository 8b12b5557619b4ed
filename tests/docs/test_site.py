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
        targets = [given[name] for name in ("href", "src", "data", "poster") if name in given]
        targets += [part.split()[0] for part in given.get("srcset", "").split(",") if part.strip()]
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


def broken_links(site: pathlib.Path) -> list[str]:
    """Return the links between pages that lead nowhere, or to a place that is not on the page."""
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
    return broken


def loaded_from_elsewhere(site: pathlib.Path) -> list[str]:
    """Return what pages and their style sheets load from other hosts: scripts, fonts, pictures, frames."""
    loaded = {target for page in site.rglob("*.html") for target in _Links(page).loaded}
    for sheet in [*site.rglob("*.css"), *site.rglob("*.html")]:
        text = sheet.read_text()
        loaded |= set(re.findall(r"url\(['\"]?((?:https?:)?//[^)'\"]*)", text))
        loaded |= set(re.findall(r"@import ['\"]((?:https?:)?//[^'\"]*)", text))
    return sorted(target for target in loaded if urllib.parse.urlsplit(target).netloc)


def test_every_link_leads_somewhere(site: pathlib.Path) -> None:
    assert broken_links(site) == []
    assert len(list(site.rglob("*.html"))) > 50


def test_no_page_needs_a_network(site: pathlib.Path) -> None:
    assert loaded_from_elsewhere(site) == []


def test_a_broken_link_and_a_font_from_elsewhere_are_found(tmp_path: pathlib.Path) -> None:
    (tmp_path / "index.html").write_text(
        '<h1 id="top">x</h1><a href="#top"></a><a href="#nowhere"></a><a href="gone.html"></a>'
        '<img srcset="https://elsewhere.test/a.png 2x" src="here.png"><a href="https://elsewhere.test/">fine</a>'
        "<style>@import 'https://elsewhere.test/font.css';</style>"
    )
    (tmp_path / "here.png").touch()
    (tmp_path / "site.css").write_text("body { background: url(//elsewhere.test/b.png) }")
    assert broken_links(tmp_path) == ["index.html: #nowhere", "index.html: gone.html"]
    assert loaded_from_elsewhere(tmp_path) == [
        "//elsewhere.test/b.png",
        "https://elsewhere.test/a.png",
        "https://elsewhere.test/font.css",
    ]


def test_the_site_is_built_without_a_network(site: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A network namespace of its own has not even loopback."""
    alone = ["unshare", "--net", "--map-root-user"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode != 0:
        pytest.skip("no network namespaces here")
    shutil.copytree(site.parent / "build", tmp_path / "build")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    (tmp_path / "src").symlink_to(ROOT / "src")
    command = [*alone, str(pathlib.Path(sys.executable).parent / "zensical"), "build", "--strict"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site/index.html").stat().st_size > 0


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
