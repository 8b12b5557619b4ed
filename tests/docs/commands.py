"""The command lines of a page: run in this process if they can, else checked against what they call."""

import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer
from tests.docs.pages import ROOT, Block
from typer.testing import CliRunner

from emberflow.cli.main import app

STAYS = {
    "demo",
    "doctor",
    "local-cluster",
    "local-hadoop",
}  # start a Spark or Hadoop of their own; tests/ has them
PATHS = ("program", "rows", "model", "output", "source", "target")
STYLE = re.compile(r"\x1b\[[0-9;]*m")
NUMBER = re.compile(r"\d+(?:\.\d+)*(?:\.dev\d+)?")


def commands_in(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Yield each command line of a block with the lines that the page shows as its output.

    In a ``console`` block commands begin with ``$``; in a ``bash`` block every line is one.
    """
    command, shown = "", []
    for line in block.text.replace("\\\n", " ").splitlines():
        if block.language == "console" and not line.startswith("$ "):
            shown.append(line)
        elif line.strip():
            if command:
                yield command, shown
            command, shown = line.removeprefix("$ "), []
    if command:
        yield command, shown


def check(command: str, shown: list[str]) -> None:
    """Run or check one command line; raise an AssertionError where a reader would be told something untrue."""
    words = shlex.split(command, comments=True)
    while words and re.match(r"\w+=", words[0]):
        words = words[1:]
    if not words:
        return
    if "$(emberflow --submit-file)" in command:
        words = shlex.split(command.partition("$(emberflow --submit-file)")[2])
        parse(words)
        return
    assert words[0] in CHECKS, (
        f"nothing is known about `{words[0]}`; run it, or put <!-- not run: reason --> before the block"
    )
    CHECKS[words[0]](words[1:], shown)


def parse(arguments: list[str]) -> "tuple[str, dict[str, Any]]":
    """Return the command and its values as the real command line reads them; wrong options are an error."""
    group: Any = typer.main.get_command(app)
    if arguments[0].startswith("-"):
        group.make_context("emberflow", list(arguments), resilient_parsing=True)
        return "", {}
    assert arguments[0] in group.commands, f"emberflow has no command {arguments[0]!r}"
    chosen = group.commands[arguments[0]]
    try:
        with chosen.make_context(arguments[0], arguments[1:]) as context:
            return arguments[0], context.params
    except Exception as error:
        raise AssertionError(f"emberflow {shlex.join(arguments)}: {error}") from error


def emberflow(arguments: list[str], shown: list[str]) -> None:
    """Run a command in this process, on the session that is active, and compare what it prints."""
    name, values = parse(arguments)
    master = str(values.get("master") or "local")
    if name in STAYS or not master.startswith("local"):
        return
    done = CliRunner().invoke(app, [absolute(word, values) for word in arguments])
    assert done.exit_code == 0, f"emberflow {shlex.join(arguments)}\n{done.output}\n{done.exception!r}"
    printed = {plain(line) for line in done.output.splitlines()}
    for line in shown:
        assert not line.strip() or plain(line) in printed, (
            f"the page shows {line!r}; it prints\n{done.output}"
        )


def absolute(word: str, values: "dict[str, Any]") -> str:
    """Return a path of the command as seen from here: the JVM of the session was started in another folder."""
    is_path = word in {str(values.get(name)) for name in PATHS} and "://" not in word
    return str(Path.cwd() / word) if is_path else word


def plain(line: str) -> str:
    """Return a line without colours and this folder, and with one sign for every number."""
    return NUMBER.sub("#", STYLE.sub("", line).replace(f"{Path.cwd()}/", "")).strip()


def make(arguments: list[str], _: list[str]) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(arguments) <= targets, f"make knows {sorted(targets)}"


def pip(arguments: list[str], _: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extras in re.findall(r"emberflow\[([\w,]+)\]", " ".join(arguments)):
        assert set(extras.split(",")) <= set(project["optional-dependencies"]), f"no such extra: {extras}"


def with_spark(arguments: list[str], shown: list[str]) -> None:
    check(shlex.join(arguments), shown)


def python(arguments: list[str], _: list[str]) -> None:
    path = arguments[1].replace(".", "/") + ".py" if arguments[0] == "-m" else arguments[0]
    assert (ROOT / path).is_file(), f"there is no {path}"


def pytest(arguments: list[str], _: list[str]) -> None:
    for path in (argument for argument in arguments if argument.startswith("tests/")):
        assert (ROOT / path).exists(), f"there is no {path}"


def export(_: list[str], __: list[str]) -> None:
    """Setting a variable needs no check."""


CHECKS: dict[str, Callable[[list[str], list[str]], None]] = {
    "emberflow": emberflow,
    "make": make,
    "pip": pip,
    "python": python,
    "pytest": pytest,
    "scripts/with-spark": with_spark,
    "export": export,
}
