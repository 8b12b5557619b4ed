"""A program for YARN with dynamic allocation: rows, a fit, lost nodes, a live cluster; it writes what it found.

spark-submit --master yarn allocating_driver.py FILE
"""

import json
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import emberflow as ef

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 96


def ids(ctx: Any) -> list[int]:
    return [int(value) for batch in ctx.dataset(columns=["id"], batch_size=8) for value in batch["id"]]


def model() -> Any:
    import keras

    keras.utils.set_random_seed(0)
    built = keras.Sequential([keras.Input((2,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    built.compile("adam", "mse")
    return built


def weights(rows: Any, workers: int) -> list[float]:
    """Fit with steps that are the whole of the rows: then one worker and two must agree."""
    estimator = ef.KerasEstimator(
        model=model, featuresCols=["a", "b"], batchSize=ROWS // workers, epochs=3, numWorkers=workers
    )
    return [float(value) for each in estimator.fit(rows).keras().get_weights() for value in each.ravel()]


def kill_executor_once(ctx: Any) -> int:
    import psutil

    if ctx.attempt == 0 and ctx.rank == 1:
        parents = psutil.Process().parents()
        next(parent for parent in parents if "java" in parent.name()).send_signal(signal.SIGKILL)
        threading.Event().wait(120)
    return int(ctx.attempt)


def kill_node_once(ctx: Any) -> int:
    if ctx.attempt == 0 and ctx.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return int(ctx.attempt)


def sums(ctx: Any) -> list[int]:
    return [
        sum(int(value) for batch in each.dataset(columns=["id"], batch_size=8) for value in batch["id"])
        for each in ctx.rounds()
    ]


def executors(spark: "SparkSession") -> int:
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1


def await_no_executor(spark: "SparkSession") -> int:
    """Wait until Spark has released all executors; return how many are left after a minute."""
    deadline = time.monotonic() + 60
    while executors(spark) and time.monotonic() < deadline:
        threading.Event().wait(0.2)
    return executors(spark)


def main() -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("allocating").getOrCreate()
    found: dict[str, Any] = {"executors_before": executors(spark), "master": spark.sparkContext.master}
    rows = spark.range(0, ROWS, 1, 3).selectExpr(
        "id", "id / 96f as a", "1 - id / 96f as b", "id / 9f as label"
    )
    result = ef.run(ids, workers=2, data=rows.select("id"), spark=spark)
    found["shards"] = [report.value for report in result.reports]
    found["weights"] = [weights(rows, 1), weights(rows, 2)]
    found["restarted"] = []
    for kill_once in (kill_node_once, kill_executor_once):
        again = ef.run(kill_once, workers=2, max_restarts=1, spark=spark)
        found["restarted"].append([again.attempts, [report.value for report in again.reports]])
    try:
        ef.run(kill_executor_once, workers=2, spark=spark)
    except ef.NodeLostError as error:
        found["lost"] = str(error)
    with ef.cluster(sums, workers=2, spark=spark) as cluster:
        found["fed"] = [cluster.train(rows.select("id")).rows for _ in range(2)]
        found["sums"] = [report.value for report in cluster.stop().reports]
    found["executors_after"] = await_no_executor(spark)
    with open(f"{sys.argv[1]}.part", "w") as file:  # noqa: PTH123
        json.dump(found, file)
    os.replace(f"{sys.argv[1]}.part", sys.argv[1])  # noqa: PTH105
    spark.stop()


if __name__ == "__main__":
    main()
