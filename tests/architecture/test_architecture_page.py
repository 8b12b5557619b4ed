"""ARCHITECTURE.md is true: its map, its layers, and every file that it names."""

import re
import tomllib

from tests.architecture.source_map import COMPAT, PAGE, ROOT, SOURCE, source_map, written_map

FILE = re.compile(r"`(?:src/emberflow/)?((?:\w+/)*\w+\.py)`")


def test_the_map_shows_every_folder_and_file() -> None:
    assert written_map() == source_map(), "run: make map"


def test_every_module_says_what_it_owns() -> None:
    files = [line for line in source_map().splitlines() if line.startswith(" ")]
    silent = [line for line in files if not re.search(r"\S +\S", line)]
    assert silent == []


def test_the_layers_are_those_that_the_linter_keeps() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    kept = [
        {name.strip() for name in layer.split("|")}
        for contract in contracts
        if contract["type"] == "layers"
        for layer in contract["layers"]
    ]
    block = PAGE.read_text().partition("## Layers")[2].partition("```text\n")[2].partition("```")[0]
    shown = [set(line.partition("  ")[0].split(", ")) for line in block.splitlines()]
    assert shown == kept


def test_every_file_that_the_page_names_is_there() -> None:
    named = set(FILE.findall(PAGE.read_text()))
    assert named
    assert [name for name in named if not (SOURCE / name).exists() and not (COMPAT / name).exists()] == []
