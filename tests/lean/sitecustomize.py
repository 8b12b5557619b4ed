"""Python runs this first in every process that the tests start: what costs time and is not needed is left out.

Keras imports each of these packages where it finds them. The import of TensorFlow takes half of its time without.
"""

import sys
from contextlib import suppress
from typing import Any

NODES = ("emberflow._node.main", "tests.tensorflow.parallel_rank")
LEFT_OUT = {"matplotlib", "sklearn"}
if any(node in sys.orig_argv for node in NODES):
    LEFT_OUT.add("pandas")  # which Spark's Python workers need


class Missing:
    """Says of some packages that they are not installed."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> None:
        if name in LEFT_OUT:
            raise ModuleNotFoundError(f"No module named {name!r}: see tests/lean", name=name)


sys.meta_path.insert(0, Missing)  # type: ignore[arg-type]

with suppress(ImportError):  # a Python in whose environment there is no Emberflow
    from emberflow._collector import pause_collector_for_import

    pause_collector_for_import("tensorflow")
