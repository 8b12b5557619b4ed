"""Spark ML stages: Keras models, and any function that exports a SavedModel.

`estimator` trains a Keras model on a DataFrame through `ef.run`, and `model` scores through `ef.predict`;
`function_estimator` and `saved_model_transformer` do the same for any function and its SavedModel. `saving` stores
all of them without the JVM. `training`, `function_training`, `asynchronous`, `resume` and `progress_callback` run on
the nodes; the rest runs on the driver.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emberflow.ml.estimator import KerasEstimator
    from emberflow.ml.function_estimator import FunctionEstimator
    from emberflow.ml.model import KerasModel
    from emberflow.ml.saved_model_transformer import SavedModelTransformer

# Nodes import this package too, for `training`: they must not wait for PySpark.
_LATER = {
    "FunctionEstimator": "emberflow.ml.function_estimator",
    "KerasEstimator": "emberflow.ml.estimator",
    "KerasModel": "emberflow.ml.model",
    "SavedModelTransformer": "emberflow.ml.saved_model_transformer",
}

__all__ = ["FunctionEstimator", "KerasEstimator", "KerasModel", "SavedModelTransformer"]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'emberflow.ml' has no attribute {name!r}")
