"""Every deadline and interval has one place: `_plan/deadlines.py`, or `config.py` where a user may set it.

Those of `compat/src` are in `emberflow_compat/deadlines.py`.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import emberflow
from emberflow import config
from tests.architecture.source_map import COMPAT

SOURCE = Path(emberflow.__file__).parent
DEADLINES = {SOURCE: SOURCE / "_plan" / "deadlines.py", COMPAT: COMPAT / "emberflow_compat" / "deadlines.py"}
HOMES = {*DEADLINES.values(), SOURCE / "config.py"}
NAME = re.compile(
    r"(^|_)(TIMEOUTS?|GRACE|SETTLE|SILENCE|INTERVAL|EVERY|SECONDS|PAUSE|PATIENCE|POLL|RETRY|DEADLINE|AGE|DELAY|WAIT|TTL)($|_)",
    re.IGNORECASE,
)
NOT_SECONDS = {"interval", "syncInterval", "sync_interval"}  # of periodic averaging: steps
NOT_SECONDS |= {"publishEvery"}  # of fitStream: micro-batches
WAITS = {"wait", "join", "sleep", "settimeout", "drain_log", "select", "poll", "readable", "next_event"}
WHERE = "put it into src/emberflow/_plan/deadlines.py with its reason, or into RunConfig if a user may need to set it"


def modules(*sources: Path) -> list[Path]:
    return sorted(path for source in sources for path in source.rglob("*.py") if path not in HOMES)


def number_in(node: ast.expr | None) -> float | None:
    """Return the value of an expression of numbers alone, such as `7 * 86400.0`; 0 stands for "do not wait"."""
    if node is None or any(not isinstance(part, ALLOWED) for part in ast.walk(node)):
        return None
    if any(
        isinstance(part, ast.Constant) and type(part.value) not in (int, float) for part in ast.walk(node)
    ):
        return None
    return float(eval(compile(ast.Expression(node), "", "eval"))) or None


ALLOWED = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)


def named_numbers(tree: ast.AST) -> Iterator[tuple[int, str, float]]:
    """Yield the line, name and number of each assignment, default and keyword argument."""
    for node in ast.walk(tree):
        for name, value in named_values(node):
            number = number_in(value)
            if number is not None and value is not None:
                yield value.lineno, name, number


def named_values(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the names that one node gives values to."""
    if isinstance(node, ast.AnnAssign):
        yield ast.unparse(node.target), node.value
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                yield from zip(map(ast.unparse, target.elts), node.value.elts, strict=True)
            else:
                yield ast.unparse(target), node.value
    elif isinstance(node, ast.arguments):
        given = [arg.arg for arg in (*node.posonlyargs, *node.args)]
        yield from zip(given[len(given) - len(node.defaults) :], node.defaults, strict=True)
        yield from zip([arg.arg for arg in node.kwonlyargs], node.kw_defaults, strict=True)
    elif isinstance(node, ast.keyword):
        yield node.arg or "", node.value


def waits(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each call that waits for a literal number of seconds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if name in WAITS and any(number_in(argument) is not None for argument in node.args):
                yield node.lineno, ast.unparse(node)


def is_users_own(name: str, number: float) -> bool:
    """Whether a signature repeats a default of RunConfig: editors show it to the user as a number."""
    option = re.sub(r"(?<=[a-z])([A-Z])", lambda found: f"_{found[1].lower()}", name)
    field = inspect.signature(config.RunConfig).parameters.get(option)
    return field is not None and field.default == number


def scattered(tree: ast.AST) -> list[tuple[int, str]]:
    """Return the line and text of everything that looks like a deadline."""
    names = [
        (line, f"{name} = {number:g}")
        for line, name, number in named_numbers(tree)
        if NAME.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name))
        and name not in NOT_SECONDS
        and not is_users_own(name, number)
    ]
    return sorted({*names, *waits(tree)})


def test_no_module_has_deadlines_of_its_own() -> None:
    found = [
        f"{path}:{line}: {text}"
        for path in modules(SOURCE, COMPAT)
        for line, text in scattered(ast.parse(path.read_text()))
    ]
    listed = "\n".join(found)
    assert not found, f"These look like deadlines: {WHERE}.\n{listed}"


@pytest.mark.parametrize(
    "code",
    [
        "END_TIMEOUT = 10.0",
        "_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0",
        "REPORT_EVERY: float = 1 / 2",
        "def connect(timeout: float = 60.0): ...",
        "def run(*, start_timeout: float = 119.0): ...",
        "event.wait(0.5)",
        "thread.join(3)",
        "time.sleep(0.05)",
        "queue.get(timeout=5)",
    ],
)
def test_scattered_deadlines_are_found(code: str) -> None:
    assert scattered(ast.parse(code))


@pytest.mark.parametrize(
    "code",
    [
        "event.wait()",
        "event.wait(deadlines.QUIT_GRACE)",
        "', '.join(names)",
        "readable([sock], 0.0)",
        "queue.get(timeout=left)",
        "def run(*, start_timeout: float = 120.0): ...",
        "def __init__(self, *, startTimeout: float = 120.0): ...",
        "seconds = 0.0",
    ],
)
def test_other_code_is_left_alone(code: str) -> None:
    assert not scattered(ast.parse(code))


@pytest.mark.parametrize("source", [SOURCE, COMPAT], ids=["emberflow", "compat"])
def test_every_deadline_is_used(source: Path) -> None:
    names = {
        ast.unparse(target)
        for node in ast.parse(DEADLINES[source].read_text()).body
        if isinstance(node, ast.Assign)
        for target in node.targets
    }
    used = {
        node.attr
        for path in modules(source)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "deadlines"
    }
    assert used == names, f"nobody uses {sorted(names - used)}, nothing defines {sorted(used - names)}"


def test_every_deadline_has_its_reason() -> None:
    for path in HOMES:
        lines = path.read_text().splitlines()
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and number_in(node.value) is not None:
                assert "  # " in lines[node.lineno - 1], f"{path}:{node.lineno} has no reason"
