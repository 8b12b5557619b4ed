"""A function in a file, named as FILE.py:FUNCTION: each node runs the file itself, as a module."""

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from emberflow._names import closest
from emberflow.errors import ConfigError

_NAMED = re.compile(r"(.+\.py):(\w+)")
USAGE = "Write FILE.py:FUNCTION, such as train.py:train."


@dataclass(frozen=True, kw_only=True)
class ProgramFile:
    """A name in a Python file; called with ``ctx`` in a node, it runs the file and calls what has that name.

    Attributes:
        path: The file, absolute.
        name: The name that it defines.
        arguments: What the file finds in ``sys.argv[1:]``.
    """

    path: str
    name: str
    arguments: tuple[str, ...] = ()

    @property
    def shown_name(self) -> str:
        """What the record of a run calls it."""
        return self.name

    @staticmethod
    def is_named_by(text: str) -> bool:
        """Tell whether a text has the form FILE.py:NAME."""
        return _NAMED.fullmatch(text) is not None

    @classmethod
    def of(cls, text: str, arguments: tuple[str, ...] = ()) -> "ProgramFile":
        """Return what FILE.py:NAME means; the file is read, and not run.

        Raises:
            ConfigError: There is no such file, it is no Python, or it does not define the name.
        """
        found = _NAMED.fullmatch(text)
        if found is None:
            raise ConfigError(f"The program must be FILE.py:FUNCTION. Received: {text!r}.", fix=USAGE)
        path, name = Path(found[1]).absolute(), found[2]
        if not path.is_file():
            raise ConfigError(
                f"The program must be a file. Received: {found[1]}, and there is none in {Path.cwd()}.",
                fix="Copy it into the image's working_dir, or write its absolute path.",
            )
        _check_defines(path, name)
        return cls(path=str(path), name=name, arguments=arguments)

    def __call__(self, ctx: Any) -> Any:
        """Run the file with its arguments, and call the function."""
        sys.argv = [self.path, *self.arguments]
        return self.load()(ctx)

    def load(self) -> Any:
        """Run the file as a module that is not the main one, and return what has the name."""
        path = Path(self.path)
        sys.path.insert(0, str(path.parent))  # as Python does for a script
        module = ModuleType(path.stem)
        module.__file__ = self.path
        sys.modules[path.stem] = module
        exec(_code_of(path), module.__dict__)  # no import, whose own frames would be in tracebacks
        return getattr(module, self.name)


def _code_of(path: Path) -> CodeType:
    return compile(path.read_bytes(), str(path), "exec")


def _check_defines(path: Path, name: str) -> None:
    try:
        code = _code_of(path)
    except (SyntaxError, ValueError) as error:
        raise ConfigError(
            f"The program must be Python. Received: {path}: {error}.", fix="Correct it."
        ) from error
    imports_all = ("*",) in code.co_consts
    if name not in code.co_names and not imports_all:
        meant = closest(name, code.co_names)
        raise ConfigError(
            f"{path} must define {name!r}. Received: {', '.join(code.co_names[:20]) or 'nothing'}.",
            fix=f"Did you mean {path.name}:{meant}?" if meant else f"Write `def {name}(ctx): ...` in it.",
        )
