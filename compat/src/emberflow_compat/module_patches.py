"""Changes to modules of other libraries that take effect when a program imports them; nothing is imported here."""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Patch = Callable[[Any], None]


def when_imported(name: str, patch: Patch) -> None:
    """Call `patch` with a module once it is imported, at once if it is already.

    `patch` must bear to be called again for a module that it has changed.
    """
    if name in sys.modules:
        patch(sys.modules[name])
    elif not any(isinstance(finder, _Finder) and finder.name == name for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(name, patch))


class _Finder(MetaPathFinder):
    """Finds the one module as others would, and has it patched after it was loaded."""

    def __init__(self, name: str, patch: Patch) -> None:
        self.name = name
        self._patch = patch

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _PatchingLoader(spec.loader, self._patch)
        return spec


class _PatchingLoader(Loader):
    def __init__(self, loader: Loader, patch: Patch) -> None:
        self._loader = loader
        self._patch = patch

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._patch(module)
