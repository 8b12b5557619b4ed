"""The names of TensorFlowOnSpark 2.2.5, on Emberflow."""

from emberflow_compat.keras_choice import prefer_keras_2
from emberflow_compat.old_distributions import check_replaced

check_replaced("tensorflowonspark")
prefer_keras_2()

__version__ = "2.2.5"  # programs that ask for it mean the interface
