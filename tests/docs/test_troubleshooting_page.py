"""The messages of the troubleshooting page are those that the code has."""

import ast
import re
from collections.abc import Iterator

from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"
ROW = re.compile(r"^\| (``? ?)(.+?)( ?``?) \| ")


def literals_in(source: str) -> Iterator[str]:
    """Yield the texts of a module: adjacent literals joined, f-strings as their constant pieces."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def messages() -> list[str]:
    """Return the texts of all modules of the package."""
    return [text for path in sorted((ROOT / "src").rglob("*.py")) for text in literals_in(path.read_text())]


def rows() -> Iterator[tuple[int, str, list[str]]]:
    """Yield line, message and cells of every row of the page's tables."""
    for number, line in enumerate(PAGE.read_text().splitlines(), start=1):
        if found := ROW.match(line):
            yield number, found[2], [cell.strip() for cell in line.strip("|").split(" | ")]


def test_every_message_is_one_of_the_code() -> None:
    known = messages()
    unknown = [
        f"docs/troubleshooting.md:{number}: no text in src/ contains `{message}`; write the new message there"
        for number, message, _ in rows()
        if not any(message in text for text in known)
    ]
    assert unknown == [], "\n".join(unknown)


def test_every_row_has_a_cause_and_a_change() -> None:
    found = list(rows())
    assert len(found) > 40
    assert [cells for _, _, cells in found if len(cells) != 3 or not all(cells)] == []


def test_no_message_is_explained_twice() -> None:
    found = [message for _, message, _ in rows()]
    assert sorted(found) == sorted(set(found))
