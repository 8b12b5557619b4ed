"""The argument `lr` of optimizers, which today's tf_keras accepts and ignores: old programs would not learn."""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MODULE = "tf_keras.src.optimizers.optimizer"
KEPT = "_lr_of_old_programs"


def honour_lr() -> None:
    """Let ``Adam(lr=0.2)`` mean ``Adam(learning_rate=0.2)``, once tf_keras is imported; that is not done here."""
    if MODULE in sys.modules:
        _patch(sys.modules[MODULE])
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds the one module as others would, and has it patched after it was loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _PatchingLoader(spec.loader)
        return spec


class _PatchingLoader(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _patch(module)


def _patch(module: Any) -> None:
    base = module._BaseOptimizer  # noqa: SLF001 - there is no other place
    if hasattr(base, KEPT):
        return
    process = base._process_kwargs  # noqa: SLF001

    def process_kwargs(self: Any, kwargs: dict[str, Any]) -> None:
        setattr(self, KEPT, kwargs.pop("lr", None))
        process(self, kwargs)

    base._process_kwargs = process_kwargs  # noqa: SLF001
    setattr(base, KEPT, None)
    for kind in (base, module.Optimizer):
        _patch_rate(kind)


def _patch_rate(kind: Any) -> None:
    build = kind._build_learning_rate  # noqa: SLF001

    def build_learning_rate(self: Any, learning_rate: Any) -> Any:
        old = getattr(self, KEPT)
        return build(self, learning_rate if old is None else old)

    kind._build_learning_rate = build_learning_rate  # noqa: SLF001
