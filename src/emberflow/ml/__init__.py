"""Keras models as Spark ML stages.

`estimator` trains on a DataFrame through `ef.run`, `model` scores through `ef.predict`, and `saving` stores both
without the JVM. `training`, `asynchronous`, `resume` and `progress_callback` run on the nodes; the rest runs on the
driver.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emberflow.ml.estimator import KerasEstimator
    from emberflow.ml.model import KerasModel

# Nodes import this package too, for `training`: they must not wait for PySpark.
_LATER = {"KerasEstimator": "emberflow.ml.estimator", "KerasModel": "emberflow.ml.model"}

__all__ = ["KerasEstimator", "KerasModel"]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'emberflow.ml' has no attribute {name!r}")
