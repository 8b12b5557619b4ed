"""ARCHITECTURE.md's map of folders and files, made from the first line of each module's docstring.

``make map`` writes it anew.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "ARCHITECTURE.md"
SOURCE = ROOT / "src" / "emberflow"
COMPAT = ROOT / "compat" / "src"
BEGIN, END = "<!-- map: `make map` writes it -->\n```text\n", "```\n<!-- end of map -->\n"


def source_map() -> str:
    """Return a line per folder and per file of the packages, folders after files."""
    return "".join(["src/emberflow/\n", *_lines(SOURCE, "  "), "compat/src/\n", *_lines(COMPAT, "  ")])


def written_map() -> str:
    """Return the map as it stands on the page."""
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


def _lines(folder: Path, indent: str) -> list[str]:
    files = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
    folders = sorted(path.parent for path in folder.glob("*/__init__.py"))
    lines = [f"{indent}{path.name:<28}{_first_line(path)}\n" for path in files]
    for below in folders:
        lines.append(f"{indent}{below.name + '/':<28}{_first_line(below / '__init__.py')}\n")
        lines += _lines(below, indent + "  ")
    return lines


def _first_line(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]


if __name__ == "__main__":
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + source_map() + END + rest.partition(END)[2])
