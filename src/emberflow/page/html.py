"""One HTML document with its styles and scripts inside: the same for a page that is served and for a file."""

import base64
import hashlib
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

FILES = Path(__file__).parent / "files"
SCRIPTS = (
    "format.js",
    "store.js",
    "axis.js",
    "marks.js",
    "pointing.js",
    "chart.js",
    "curves.js",
    "start.js",
    "nodes.js",
    "logs.js",
    "views.js",
    "list.js",
    "main.js",
)


@cache
def document() -> str:
    """Return the document without any data."""
    page = (FILES / "run.html").read_text(encoding="utf-8")
    style = (FILES / "run.css").read_text(encoding="utf-8")
    filled = page.replace("/* style */", style).replace("/* script */", script())
    return filled.replace("/* policy */", policy().partition("; frame-ancestors")[0])


@cache
def script() -> str:
    """Return all scripts, one after the other, in a scope of their own."""
    parts = "\n".join((FILES / name).read_text(encoding="utf-8") for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}\n}})();\n'


@cache
def policy() -> str:
    """Return the content security policy: our own script by its digest, our own server, nothing else."""
    digest = base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def report(runs: Iterable[dict[str, Any]]) -> str:
    """Return the document with all that there is to show of some runs.

    Args:
        runs: `RunState.changes` of each; the first is shown, the others beside it.
    """
    return document().replace('"data":null', f'"data":{_in_script(list(runs))}')


def _in_script(value: Any) -> str:
    r"""Return JSON that can stand in a script element: no text of a user's log can end it.

    >>> _in_script("</script><!--")
    '"\\u003c/script>\\u003c!--"'
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, default=str)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
