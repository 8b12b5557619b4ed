"""The table of faults names every test of a fault, and only tests that exist."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "faults.md"
NAMED = re.compile(r"`(test_\w+)::(test_\w+)`")


def marked_tests() -> Iterator[tuple[str, str]]:
    """Yield file and name of every test that carries the mark ``fault``."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and any(
                ast.unparse(decorator) == "pytest.mark.fault" for decorator in node.decorator_list
            ):
                yield path.stem, node.name


def test_every_fault_that_a_test_knows_is_in_the_table_and_no_other() -> None:
    named = NAMED.findall(PAGE.read_text())
    assert len(named) == len(set(named))
    assert set(named) == set(marked_tests())


def test_every_row_says_what_happens_what_you_see_and_when() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if NAMED.search(line)]
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 4, row
        assert all(cells), row
        assert "TODO" not in row
