"""What `TFCluster.train` and `TFCluster.inference` refuse, each with what to change."""

from emberflow.errors import ClusterError
from tensorflowonspark.old_errors import UsageError


class InputMode:
    """How nodes get their rows: by themselves, or from Spark."""

    TENSORFLOW = 0
    SPARK = 1


def check_mode(call: str, input_mode: int | None) -> None:
    """Refuse to feed a cluster that reads its own rows."""
    if input_mode != InputMode.SPARK:
        raise UsageError(
            f"TFCluster.{call}() requires InputMode.SPARK. Received: input_mode={input_mode}.",
            fix="Pass input_mode=TFCluster.InputMode.SPARK to TFCluster.run.",
        )


def check_rdd(call: str, rows: object) -> None:
    """Refuse what is neither an RDD nor a DStream."""
    if not hasattr(type(rows), "mapPartitions"):  # both have it, and DataFrames have not
        raise UsageError(
            f"TFCluster.{call}() requires an RDD. Received: an object of {type(rows).__qualname__}.",
            fix="Pass df.rdd of a DataFrame, or sc.parallelize(rows) of a list.",
        )


def unknown_queue(name: str) -> UsageError:
    """Return the error of a queue that the cluster was not started with."""
    return UsageError(
        f"Unknown queue: {name}. Received: {name!r}, which is not one of the cluster's queues.",
        fix=f"Pass queues=['input', 'output', 'error', {name!r}] to TFCluster.run.",
    )


def too_late(call: str) -> ClusterError:
    """Return the error of a call after `shutdown`."""
    return ClusterError(
        f"TFCluster.{call}() needs a cluster that is up. Received: a call after shutdown().",
        fix="Call it before shutdown(), or start another cluster with TFCluster.run.",
    )
