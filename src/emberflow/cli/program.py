"""The program of `emberflow train`: its function that builds the model, which nodes run and the driver only reads."""

import ast
import importlib.util
import linecache
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from emberflow.errors import ConfigError

BUILD = "build_model"
# What may stand at the top of a file that means the same on a node: it reads nothing of the driver.
PLAIN = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


@dataclass(frozen=True, kw_only=True)
class ProgramModel:
    """Builds the model of a program: the file runs in the node, and the driver does not import Keras for it."""

    path: str
    source: str = field(repr=False)

    def __call__(self) -> Any:
        """Return the compiled model."""
        return getattr(self.load(), BUILD)()

    def load(self) -> ModuleType:
        """Run the file as a module."""
        name = Path(self.path).stem
        module = ModuleType(name)
        module.__file__ = self.path
        sys.modules[name] = module
        lines = self.source.splitlines(keepends=True)
        linecache.cache[self.path] = (
            len(self.source),
            None,
            lines,
            self.path,
        )  # for tracebacks on other hosts
        exec(compile(self.source, self.path, "exec"), module.__dict__)
        return module


def load_builder(path: Path) -> Callable[[], Any]:
    """Return `build_model` of a Python file, to be called in a node."""
    if not path.is_file() or path.suffix != ".py":
        raise ConfigError(
            f"The program must be a Python file. Received: {path}.",
            fix="Pass the path of a file that exists and ends in .py.",
        )
    source = path.read_text()
    tree = ast.parse(source, str(path))
    if all(_is_plain(each, path.parent) for each in tree.body):
        _check_names(path, {name for each in tree.body for name in _names_of(each)})
        return ProgramModel(path=str(path.resolve()), source=source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None  # noqa: S101 - it ends in .py
    assert spec.loader is not None  # noqa: S101 - for the type checker
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    _check_names(path, {name for name in dir(module) if name != BUILD or callable(module.build_model)})
    return getattr(module, BUILD)  # type: ignore[no-any-return]


def _check_names(path: Path, found: set[str]) -> None:
    if BUILD not in found:
        names = sorted(name for name in found if not name.startswith("_"))[:20]
        raise ConfigError(
            f"{path} must define a function `{BUILD}`. Received: {names}.",
            fix=f"Write `def {BUILD}(): ...` that returns a compiled Keras model.",
        )


def _is_plain(statement: ast.stmt, folder: Path) -> bool:
    """Tell whether a statement means the same on any host: installed packages, functions, constants."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return not any(
            (folder / name).exists() or (folder / f"{name}.py").exists() for name in _roots(statement)
        )
    if isinstance(statement, ast.Assign):
        return all(isinstance(each, ast.Name) for each in statement.targets) and _is_constant(statement.value)
    return isinstance(statement, PLAIN) or (isinstance(statement, ast.Expr) and _is_constant(statement.value))


def _is_constant(value: ast.expr) -> bool:
    try:
        ast.literal_eval(value)
    except ValueError:
        return False
    return True


def _roots(statement: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(statement, ast.Import):
        return [each.name.partition(".")[0] for each in statement.names]
    return [(statement.module or "").partition(".")[0]]


def _names_of(statement: ast.stmt) -> list[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [each.asname or each.name.partition(".")[0] for each in names]
        case ast.Assign(targets=targets):
            return [each.id for each in targets if isinstance(each, ast.Name)]
    return []
