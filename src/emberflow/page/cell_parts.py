"""What all cells of a notebook are made of: one look for runs, clusters and plans; all text is escaped."""

import html
from collections.abc import Iterable, Sequence
from typing import NamedTuple

ACTIVE, GOOD, BAD = "#e0520a", "#2b8a3e", "#c92a2a"
QUIET = "color:#888;font-size:12px"
_LEFT = "text-align:left;vertical-align:top"


class Coloured(NamedTuple):
    """Text of a table in a colour of its own."""

    text: str
    colour: str


def cell(*parts: str) -> str:
    """Return the content of a cell, from parts that are HTML."""
    return f'<div style="font-family:system-ui,sans-serif;max-width:820px">{"".join(parts)}</div>'


def heading(name: str, status: Coloured, about: str) -> str:
    """Return the first line: what it is, how it is, and a few facts."""
    return (
        f'<b style="font-size:15px">{html.escape(name)}</b> '
        f'<span style="color:{status.colour};font-weight:600">● {html.escape(status.text)}</span> '
        f'<span style="{QUIET}">{html.escape(about)}</span>'
    )


def note(text: str) -> str:
    """Return a line of its own that is less important than what is above it."""
    return f'<p style="{QUIET};margin:6px 0 0">{html.escape(text)}</p>'


def in_bytes(size: float) -> str:
    """Return a size as people write it.

    >>> in_bytes(31_000_000), in_bytes(1_540_000_000)
    ('31 MB', '1.5 GB')
    """
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def table(names: Sequence[str], rows: Iterable[Sequence[str | Coloured]]) -> str:
    """Return a table with a line of names on top.

    >>> table(["node"], [["<b>"]]).count("&lt;b&gt;")
    1
    """
    head = "".join(f'<th style="{_LEFT};{QUIET};font-weight:500">{html.escape(name)}</th>' for name in names)
    body = "".join(f"<tr>{''.join(map(_table_cell, row))}</tr>" for row in rows)
    return f'<table style="margin-top:8px;font-size:13px;color:inherit"><tr>{head}</tr>{body}</table>'


def _table_cell(content: str | Coloured) -> str:
    text, colour = content if isinstance(content, Coloured) else (content, "inherit")
    return f'<td style="{_LEFT};color:{colour}">{html.escape(text)}</td>'
