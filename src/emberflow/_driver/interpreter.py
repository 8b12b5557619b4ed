"""Which Python runs the tasks: on a Spark of this machine the driver's own; elsewhere an error names it."""

import functools
import os
import platform
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import cloudpickle

from emberflow._driver.spark_versions import FRAME_PROFILES, offers

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

DRIVER_PYTHON = f"{platform.python_version()} ({sys.executable})"
SPARKS_CHOICE = "python3"  # what PySpark names by default

# PySpark reads the interpreter from the context when it makes a function; two threads must not interleave here.
_NAMING = threading.RLock()


def map_in_arrow(
    frame: "DataFrame", task: Callable[..., Any], schema: Any, *, barrier: bool = False, profile: Any = None
) -> "DataFrame":
    """Return ``frame.mapInArrow(task, ...)``, run by the right Python, or with an error that names the wrong one."""
    spark = frame.sparkSession
    more = {} if profile is None else {"profile": profile}  # Spark 3.5 has no such argument
    with driver_python(spark):
        return frame.mapInArrow(_started_by(spark, task), schema, barrier=barrier, **more)


def collect_in_arrow(
    frame: "DataFrame", task: Callable[..., Any], schema: Any, *, barrier: bool = False, profile: Any = None
) -> list[Any]:
    """Run ``frame.mapInArrow(task, ...)`` and return its rows.

    Spark 3.5 takes no profile for a DataFrame, but one for the stage in which an RDD of its rows is collected.
    """
    spark = frame.sparkSession
    if profile is None or is_connect(spark) or offers(spark, FRAME_PROFILES):
        return map_in_arrow(frame, task, schema, barrier=barrier, profile=profile).collect()
    return map_in_arrow(frame, task, schema, barrier=barrier).rdd.withResources(profile).collect()


def collect_without_sql(
    spark: "SparkSession", tasks: int, task: Callable[..., Any], *, barrier: bool = False, profile: Any = None
) -> list[Any]:
    """Run so many tasks, none with rows, and return what they yield; not on Spark Connect, which has no RDDs.

    A new JVM takes seconds to load and compile Spark SQL, on the driver and on each executor.
    """
    start = _started_by(spark, task)
    with driver_python(spark):
        numbers = spark.sparkContext.parallelize(range(tasks), tasks)
        started = numbers.barrier().mapPartitions(start) if barrier else numbers.mapPartitions(start)
        if profile is not None:
            started = started.withResources(profile)
        made(started)
    return list(started.collect())


def _started_by(spark: "SparkSession", task: Callable[..., Any]) -> Callable[..., Any]:
    """Return the task as Spark gets it: it runs if its Python is the driver's, else the error names both."""
    fix = fix_for(None if is_connect(spark) else str(spark.sparkContext.master))
    return functools.partial(_start, cloudpickle.dumps(task), DRIVER_PYTHON, fix)


def made(rdd: "RDD[Any]") -> "RDD[Any]":
    """Have PySpark make the RDD's function now, while the interpreter for it is named."""
    _ = rdd._jrdd  # noqa: SLF001 - PySpark has no public way
    return rdd


@contextmanager
def driver_python(spark: "SparkSession | None") -> Iterator[None]:
    """Have the Python functions that are made in the block run by the driver's interpreter, on this machine's Spark.

    Spark starts the first `python3` of the PATH unless PYSPARK_PYTHON says otherwise, and that is another one
    wherever a virtual environment is used without activating it.
    """
    context = None if spark is None or is_connect(spark) else spark.sparkContext
    with _NAMING:
        program = None if context is None else _chosen(context)
        if context is None or program is None:
            yield
            return
        context.pythonExec = program
        try:
            yield
        finally:
            context.pythonExec = SPARKS_CHOICE


def is_connect(spark: "SparkSession") -> bool:
    """Tell whether the session is a Spark Connect client."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_this_machine(master: str) -> bool:
    """Tell whether a master starts its executors on the driver's machine.

    >>> [is_this_machine(master) for master in ("local", "local[2]", "local-cluster[2,1,1024]", "spark://a:1")]
    [True, True, True, False]
    """
    return is_local(master) or master.startswith("local-cluster[")


def is_local(master: str) -> bool:
    """Tell whether a master has no executors: tasks run on the driver's JVM, and write to the driver's terminal.

    >>> [is_local(master) for master in ("local", "local[2]", "local-cluster[2,1,1024]")]
    [True, True, False]
    """
    return master == "local" or master.startswith("local[")


def fix_for(master: str | None) -> str:
    """Return how the user names another Python for the executors of a master; None stands for Spark Connect."""
    if master is None:
        return (
            "Install emberflow on every executor and restart the Spark Connect server with PYSPARK_PYTHON set to "
            "that Python, or name it in this session: "
            'spark.conf.set("spark.sql.execution.pyspark.python", "/path/on/executors/bin/python").'
        )
    if is_this_machine(master):
        return f"Before the session starts: export PYSPARK_PYTHON={sys.executable}"
    if master == "yarn":
        return (
            "Send the driver's environment along: venv-pack -o environment.tar.gz, then spark-submit --archives "
            "environment.tar.gz#environment --conf spark.pyspark.python=./environment/bin/python."
        )
    return (
        "Install emberflow on every executor and name that Python before the session starts: "
        "export PYSPARK_PYTHON=/path/on/executors/bin/python, or spark-submit --conf "
        "spark.pyspark.python=/path/on/executors/bin/python. If executors share the driver's disk: "
        f"export PYSPARK_PYTHON={sys.executable}"
    )


def executors_python() -> tuple[str, str]:
    """Return the executors' Python as the driver names it, and how to name another one.

    For errors of Spark's own worker, which stops before Emberflow's code could name it.
    """
    from pyspark import SparkContext

    context = SparkContext._active_spark_context  # noqa: SLF001 - PySpark has no public function
    if context is None:
        return "as the Spark Connect server names it", fix_for(None)
    return str(context.pythonExec), fix_for(str(context.master))


def _chosen(context: Any) -> str | None:
    """Return the Python to name in place of Spark's choice; None where the user or the cluster decides."""
    if context.pythonExec != SPARKS_CHOICE or "PYSPARK_PYTHON" in os.environ:
        return None
    if not is_this_machine(str(context.master)):
        return None
    return context.getConf().get("spark.pyspark.python") or sys.executable or None


def _start(payload: bytes, driver: str, fix: str, batches: Any) -> Any:
    """Run the task; where emberflow is not installed, raise an error that names the Python without it."""
    import pickle
    import platform
    import socket
    import sys

    try:
        task = pickle.loads(payload)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"The executors' Python {platform.python_version()} ({sys.executable}) on {socket.gethostname()} "
            f"has no module {error.name}. Received: the driver's Python {driver}.\nFix: {fix}"
        ) from None
    return task(batches)


_start.__module__ = (
    "__main__"  # functions of "__main__" travel by value: it must run where emberflow is missing
)
