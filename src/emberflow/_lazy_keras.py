"""Parts of Keras that import scikit-learn and matplotlib: loaded when they are first used.

Where these packages are installed they take a third of the time of ``import keras``, and training uses neither.
"""

import sys
from importlib.machinery import ModuleSpec
from importlib.util import LazyLoader, find_spec
from typing import Any

PARTS = ("keras.wrappers", "keras.visualization", "keras.src.visualization")


def load_parts_late() -> None:
    """Have this process load these parts of Keras on their first use; parts that are here stay."""
    if not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Answers once for each of these modules, with a loader that waits; not a MetaPathFinder, as in `_collector`."""

    def __init__(self) -> None:
        self._waiting = set(PARTS)

    def find_spec(self, fullname: str, *_: Any) -> ModuleSpec | None:
        if fullname not in self._waiting:
            return None
        self._waiting.remove(fullname)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec
