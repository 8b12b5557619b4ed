"""Keras models as Spark ML stages.

`estimator` trains on a DataFrame through `ef.run`, `model` scores through `ef.predict`, and `saving` stores both
without the JVM. `training`, `asynchronous`, `resume` and `progress_callback` run on the nodes; the rest runs on the
driver.
"""

from emberflow.ml.estimator import KerasEstimator
from emberflow.ml.model import KerasModel

__all__ = ["KerasEstimator", "KerasModel"]
