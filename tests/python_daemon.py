"""PySpark's daemon, which has imported what Spark's Python workers need before it forks them.

PySpark's own imports nothing, so that each worker imports pandas, pyarrow and PySpark for itself: a second of
processor time. Spark starts this one by ``spark.python.daemon.module``.
"""

import gc
import sys
from contextlib import suppress
from importlib import import_module

from pyspark.daemon import manager

# Spark has a daemon for each of its modules of workers; this is for the one that runs tasks.
IMPORTED = [
    "cryptography.hazmat.primitives.ciphers.aead",
    "cryptography.hazmat.primitives.kdf.hkdf",
    "emberflow._score.score_task",
    "emberflow._task.node_task",
    "emberflow._task.parallel_task",
    "pandas",
    "pyarrow.pandas_compat",
    "pyspark.sql.pandas.serializers",
]

if __name__ == "__main__":
    gc.disable()
    for name in [*sys.argv[1:], *(IMPORTED if "pyspark.worker" in sys.argv else [])]:
        with suppress(ImportError):  # the worker says what a Python without it lacks
            import_module(name)
    gc.freeze()  # a worker that is used again collects after each task
    gc.enable()
    manager()
