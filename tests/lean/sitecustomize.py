"""Python runs this first in every process that the tests start: what costs time and is not needed is left out.

Keras imports each of these packages where it finds them. The import of TensorFlow takes half of its time without.
"""

import os
import sys
from contextlib import suppress
from importlib.machinery import ModuleSpec
from types import ModuleType

NODE = "emberflow._node.main"
RANK = "tests.tensorflow.parallel_rank"
DAEMONS = {"pyspark.daemon", "tests.python_daemon"}
EVERY_PACKAGE = (
    "EMBERFLOW_TESTS_EVERY_PACKAGE"  # for programs, not for the nodes and Python workers that they start
)


def packages_to_leave_out(arguments: set[str]) -> set[str]:
    """Return the packages that this process does not need."""
    if {NODE, RANK} & arguments:
        return {"matplotlib", "pandas", "sklearn"}
    if EVERY_PACKAGE in os.environ and not DAEMONS & arguments:
        return set()
    return {"matplotlib", "sklearn"}


class LeaveOut:
    """Finds the packages that are left out, and fails to import them."""

    def __init__(self, packages: set[str]) -> None:
        self._packages = packages

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in self._packages else None  # type: ignore[arg-type]

    def create_module(self, _: ModuleSpec) -> None:
        """Have Python make the module as usual."""

    def exec_module(self, module: ModuleType) -> None:
        raise ImportError(f"{module.__name__} is left out of the processes that tests start; see tests/lean")


arguments = set(sys.orig_argv)
sys.meta_path.insert(0, LeaveOut(packages_to_leave_out(arguments)))  # type: ignore[arg-type]

if not ({NODE} | DAEMONS) & arguments:  # which do it themselves
    with suppress(ImportError):  # a Python in whose environment there is no Emberflow
        from emberflow._collector import pause_collector_for_import

        pause_collector_for_import("tensorflow")
