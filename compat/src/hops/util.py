"""What Spark, or Jupyter on Hops, was configured with."""

import itertools
import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from emberflow_compat.classic_sessions import active_session, classic_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARAMETER_SERVERS = "NUM_TF_PS"


def num_executors(spark: "SparkSession | None" = None) -> int:
    """Return how many executors the session is configured with, or else how many it has.

    Args:
        spark: The session; the active one if left out.

    Raises:
        ClusterError: The session is one of Spark Connect, which tells neither.
    """
    session = active_session() if spark is None else spark
    for key in ("spark.dynamicAllocation.maxExecutors", "spark.executor.instances"):
        value = _setting(session, key)
        if value and value.isdecimal():
            return int(value)
    context = classic_context(session, "util.num_executors", native="ef.run(fn, workers=n)")
    if local := re.fullmatch(r"local-cluster\[\s*(\d+)\s*,.*\]", str(context.master)):
        return int(local[1])
    if str(context.master).startswith("local"):  # threads of the driver, which is the one executor
        return 1
    infos = context._jsc.sc().statusTracker().getExecutorInfos()  # noqa: SLF001 - PySpark's own tracker has no executors
    return max(len(infos) - 1, 1)  # one of them is the driver


def num_param_servers(spark: "SparkSession | None" = None) -> int:
    """Return how many parameter servers the session, or Jupyter on Hops, is configured with; 0 if nothing is said.

    Args:
        spark: The session; the active one if left out.
    """
    session = active_session() if spark is None else spark
    said = (
        _setting(session, "spark.tensorflow.num.ps"),
        _setting(session, f"spark.executorEnv.{PARAMETER_SERVERS}"),
        os.environ.get(PARAMETER_SERVERS),
    )
    return next((int(value) for value in said if value and value.isdecimal()), 0)


def grid_params(values: Mapping[str, Iterable[Any]]) -> dict[str, list[Any]]:
    """Return all combinations of hyperparameters, as lists of equal length for `tflauncher.launch`.

    >>> grid_params({"rate": [0.1, 0.2], "units": [8, 16]})
    {'rate': [0.1, 0.1, 0.2, 0.2], 'units': [8, 16, 8, 16]}
    """
    combinations = list(itertools.product(*values.values()))
    return {name: [each[place] for each in combinations] for place, name in enumerate(values)}


def _setting(session: "SparkSession", key: str) -> str | None:
    return session.conf.get(key, None)
