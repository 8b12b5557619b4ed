"""The name of spark-tensorflow-distributor, on Emberflow."""

from emberflow_compat.keras_choice import prefer_keras_2
from emberflow_compat.old_distributions import check_replaced
from spark_tensorflow_distributor.mirrored_strategy_runner import MirroredStrategyRunner

check_replaced("spark-tensorflow-distributor")
prefer_keras_2()

__all__ = ["MirroredStrategyRunner"]
