"""The names of tensorspark 1.0, on Emberflow: graphs of TensorFlow 1 that train on RDDs."""

from emberflow_compat.old_distributions import check_replaced

check_replaced("tensorspark")
