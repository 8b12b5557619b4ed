"""Whether a classic Spark session can still run jobs, and if not, why."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def how_ended(spark: "SparkSession") -> str:
    """Return in which way a classic session has ended, as "was stopped"; "" if it has not."""
    context = spark.sparkContext._jsc  # noqa: SLF001 - PySpark has no public way to ask
    try:
        is_stopped = context is None or bool(context.sc().isStopped())
    except Exception:  # noqa: BLE001 - whatever Py4J raises when it cannot reach the JVM
        return "lost its JVM on the driver"
    return "was stopped" if is_stopped else ""
