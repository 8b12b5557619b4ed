"""Python's garbage collector, paused while TensorFlow is imported: it takes a third of that import's time."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


@contextmanager
def collector_paused() -> Iterator[None]:
    """Collect nothing in the block; leave what it made out of all later collections.

    An import makes a million objects that stay until the process ends. The collector looks through them again and
    again while they are made, after every task of a Spark Python worker, and three times when the process ends.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


def pause_collector_for_import(package: str) -> None:
    """Pause the collector when this package is imported, by whoever and whenever; a package that is here stays."""
    if package not in sys.modules:
        sys.meta_path.insert(0, _Finder(package))


class _Finder:
    """Answers once, for one package: the others' answer, with a loader that pauses the collector.

    Not a MetaPathFinder by name: every node would import `importlib.abc` for it, which takes 25 ms.
    """

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, fullname: str, *_: Any) -> ModuleSpec | None:
        if fullname != self._package:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_without_collector(module: ModuleType) -> None:
                with collector_paused():
                    run(module)

            spec.loader.exec_module = run_without_collector  # type: ignore[method-assign]
        return spec
