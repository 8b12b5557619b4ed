"""The pages of this repository and their code blocks: found, not listed, so that a new page cannot be forgotten."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("benchmarks/*.md"),
        *ROOT.glob("compat/*.md"),
        *ROOT.glob("examples/*.md"),
        *ROOT.glob("notebooks/*.md"),
    ]
)
FENCE = re.compile(r"^( *)(`{3,}|~{3,})\s*([^`]*)$")
NOT_RUN = re.compile(r"^\s*<!-- not run: (.+) -->$")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page.

    Attributes:
        page: The page's path within the repository.
        line: The number of its first line of code.
        language: The word behind the fence; "" where there is none.
        text: What is between the fences.
        reason: Why it cannot run, as the comment before it says; "" where it must run.
    """

    page: str
    line: int
    language: str
    text: str
    reason: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: str) -> Iterator[Block]:
    """Yield the blocks of a page in order."""
    lines = (ROOT / page).read_text().splitlines()
    start, fence, language = 0, "", ""
    for number, line in enumerate(lines, start=1):
        found = FENCE.match(line)
        if not found:
            continue
        if not fence:
            start, fence, language = number, found[2], found[3].strip()
        elif found[2].startswith(fence) and not found[3]:
            text = "\n".join(lines[start : number - 1]) + "\n"
            yield Block(page, start + 1, language, text, _reason_before(lines, start - 1))
            fence = ""
    assert not fence, f"{page}:{start}: this block has no end"


def _reason_before(lines: list[str], opening: int) -> str:
    """Return the reason in a comment directly before the fence, or with one empty line between."""
    for line in reversed(lines[max(0, opening - 2) : opening]):
        if line.strip():
            found = NOT_RUN.match(line)
            return found[1] if found else ""
    return ""


def all_blocks() -> list[Block]:
    """Return the blocks of all pages."""
    return [block for page in PAGES for block in blocks_of(page)]
