"""Keras models as Spark ML stages.

Who owns what:
    params      the Params that estimator and model share, with their setters and getters
    estimator   KerasEstimator: a DataFrame in, a KerasModel out
    training    what each node runs: build, distribute, fit
    inputs      columns of the DataFrame to inputs and outputs of the model
    progress    what the chief tells the driver while it trains
    resume      checkpoints while it trains, and starting from one
    model       KerasModel: scoring, history, the Keras model itself
    answers     what the model's output means: class index, probability, value
    saving      writing and reading both, without the JVM
"""

from emberflow.ml.estimator import KerasEstimator
from emberflow.ml.model import KerasModel

__all__ = ["KerasEstimator", "KerasModel"]
