"""The names of Hops' library that train on Spark, on Emberflow: `util`, `tflauncher`, `tensorboard` and `hdfs`."""

from emberflow_compat.old_distributions import check_replaced

check_replaced("hops")
