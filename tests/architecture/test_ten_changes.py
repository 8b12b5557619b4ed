"""CONTRIBUTING.md's table of changes names files that exist, and what is in them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "emberflow"
SECTION = (ROOT / "CONTRIBUTING.md").read_text().partition("## Ten changes")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| (?!change|---)([^|]+) \| ([^|]+) \|$", SECTION, re.MULTILINE)


def test_there_are_ten_changes() -> None:
    assert len(ROWS) == 10


@pytest.mark.parametrize("files", [files for _, files in ROWS], ids=[change for change, _ in ROWS])
def test_a_change_names_what_is_there(files: str) -> None:
    existing = files.replace("a new `_feed/orc.py`", "")
    named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", existing)
    folders = re.findall(r"`([\w/]+/)`", existing)
    assert named
    for path, name in named:
        text = (SOURCE / path).read_text()
        defined = rf"^\s*(?:class|def) {name}\b|^{name}\b\s*[:=]"
        assert not name or re.search(defined, text, re.MULTILINE), f"{path} does not define {name}"
    assert all((SOURCE / folder).is_dir() for folder in folders)
