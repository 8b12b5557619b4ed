"""Gather the pages of the documentation site in one folder: site_pages.py FOLDER.

README, CHANGELOG and their like stay where people look for them, and become pages beside those of docs/. A link to a
source file leads to a page that shows it. All links are rewritten accordingly; the site's generator then checks them.
"""

import json
import pathlib
import posixpath
import re
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# A path in the repository and the page of the site that it leads to.
PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks.md",
    "compat/README.md": "compat.md",
    "examples/README.md": "examples.md",
    "notebooks/README.md": "notebooks.md",
}
# Paths that are no pages of the site, and what says the same there.
INSTEAD = {
    "README.md": "getting-started.md",
    "docs/README.md": "index.md",  # a list of all pages, which the site has as its navigation
    "docs/clusters": "clusters/standalone.md",
}
ALONE = {
    "benchmarks.md",
    "changelog.md",
    "troubleshooting.md",
}  # no pages beside them to list: room for tables
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)#\s]+)")
LANGUAGES = {
    ".java": "java",
    ".md": "markdown",
    ".py": "python",
    ".sh": "bash",
    ".toml": "toml",
    ".yaml": "yaml",
}


def gather(folder: pathlib.Path) -> None:
    """Write all pages, and what they show, into an empty `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs/assets", folder / "assets")
    sources = dict(PAGES)
    for file in sorted((ROOT / "docs").rglob("*.md")):
        path = file.relative_to(ROOT).as_posix()
        if path not in INSTEAD:
            sources[path] = path.removeprefix("docs/")
    shown = set()
    for path, page in sources.items():
        text, linked = _with_links_of_the_site((ROOT / path).read_text(), path, page)
        _write(folder / page, f"---\nhide:\n  - navigation\n---\n\n{text}" if page in ALONE else text)
        shown |= linked
    for path in shown:
        _write(folder / _page_of(path), _listing(path))


def _with_links_of_the_site(text: str, path: str, page: str) -> tuple[str, set[str]]:
    """Return the text of a page with its links rewritten, and the source files and folders that it links to."""
    shown = set()

    def rewritten(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), match.group(1)))
        if target not in PAGES | INSTEAD and not target.startswith("docs/") and (ROOT / target).exists():
            shown.add(target)
        return posixpath.relpath(_page_of(target), posixpath.dirname(page) or ".")

    return LINK.sub(rewritten, text), shown


def _page_of(path: str) -> str:
    """Return the page, or other file of the site, for a path of the repository."""
    if path in PAGES | INSTEAD:
        return (PAGES | INSTEAD)[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else f"source/{path}.md"


def _listing(path: str) -> str:
    """Return a page that shows a source file, or those of a folder."""
    place = ROOT / path
    files = (
        sorted(file for file in place.iterdir() if file.suffix in LANGUAGES) if place.is_dir() else [place]
    )
    blocks = [
        f"## {file.name}\n\n{_code_block(file)}" if place.is_dir() else _code_block(file) for file in files
    ]
    return f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n\n" + "\n".join(blocks)


def _code_block(file: pathlib.Path) -> str:
    text = file.read_text()
    if file.suffix == ".ipynb":
        return _notebook(text)
    fence = "`" * (1 + max(map(len, re.findall("`{2,}", text)), default=2))  # longer than any inside
    return f"{fence}{LANGUAGES.get(file.suffix, 'text')}\n{text.rstrip()}\n{fence}\n"


def _notebook(text: str) -> str:
    """Return a notebook as a page: its text, and its code in blocks."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            parts.append(f"```python\n{source}\n```")
        else:  # its page has a title already, and other notebooks have pages of their own
            parts.append(re.sub(r"^# ", "## ", re.sub(r"\.ipynb\)", ".ipynb.md)", source)))
    return "\n\n".join(parts) + "\n"


def _write(file: pathlib.Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


if __name__ == "__main__":
    gather(pathlib.Path(sys.argv[1]))
