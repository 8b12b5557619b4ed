"""Importing TensorFlow while the rows of a node are on their way: before your function is loaded, on the main thread.

A second thread would race with your own imports. ``import tensorflow`` imports Keras, ``import keras`` TensorFlow;
where two threads do these at once, Python breaks the deadlock of their locks by showing one of them a half-imported
module, and TensorFlow cannot be imported any more. The main thread has nothing else to do until the rows are there.
"""

import contextlib
import importlib
from collections.abc import Iterable

from emberflow._collector import collector_paused
from emberflow._node.node_spec import NodeSpec


def preloads(spec: NodeSpec) -> bool:
    """Tell whether this node imports packages before it loads your function."""
    is_plain_server = spec.me.role == "ps" and spec.plan.strategy == "periodic"  # numpy and sockets only
    return bool(spec.plan.preload) and not is_plain_server


def preload(packages: Iterable[str]) -> None:
    """Import these packages. An error is left to your function, whose own import raises it again."""
    with collector_paused():
        for name in packages:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
