"""Python runs this first in every process that the tests start: what costs time and is not needed is left out.

Keras imports each of these packages where it finds them. The import of TensorFlow takes half of its time without.
"""

import sys
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

NODES = ("emberflow._node.main", "tests.tensorflow.parallel_rank")
LEFT_OUT = {"matplotlib", "sklearn"}
if any(node in sys.orig_argv for node in NODES):
    LEFT_OUT.add("pandas")  # which Spark's Python workers need


class LeaveOut(MetaPathFinder, Loader):
    """Finds the packages that are left out, and fails to import them."""

    def find_spec(self, fullname: str, *_: Any) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in LEFT_OUT else None

    def exec_module(self, module: ModuleType) -> None:
        raise ImportError(f"{module.__name__} is left out of the processes that tests start; see tests/lean")


sys.meta_path.insert(0, LeaveOut())

with suppress(ImportError):  # a Python in whose environment there is no Emberflow
    from emberflow._collector import pause_collector_for_import

    pause_collector_for_import("tensorflow")
