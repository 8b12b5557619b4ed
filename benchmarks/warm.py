"""How long from `fit` to the end of its first step, on a warm cluster and without one?

A small Keras model on 2,000 rows, two workers on ``local-cluster[2,1,1024]``: ``ef.run`` as it is, and
``ef.run(..., cluster=cluster)`` on an idle cluster, in turn. What a step needs besides the start, building and
tracing the model, is measured inside the function; so is, in turn, what two processes take that import TensorFlow and
Keras at the same time and do nothing else. The rest is what the start costs.
``python -m benchmarks.warm [REPEATS]``
"""

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import emberflow as ef
from benchmarks.measure import alternate, print_result, summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPEATS = 7


def first_step(ctx: Any) -> tuple[float, float]:
    """Return when the model was about to be built, and when its first step had been taken."""
    import keras

    import tensorflow as tf  # noqa: F401 - imported before the clock of the model starts

    began = time.time()
    ended: list[float] = []
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(64), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    rows = ctx.dataset(features="x", label="y", batch_size=500)
    once = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: ended.append(time.time()))  # noqa: ARG005
    ctx.distribute(model).fit(rows, verbose=0, callbacks=[once])
    return began, ended[0]


class Side:
    """Runs with or without a warm cluster."""

    def __init__(self, spark: "SparkSession", cluster: "ef.Cluster | None") -> None:
        self.models: list[float] = []
        self._cluster = cluster
        self._spark = spark
        self._rows = spark.range(2000).selectExpr("cast(id as float) x", "cast(id as float) y")

    def seconds_to_first_step(self) -> float:
        """Fit once; return the seconds from the call to the end of the first step on the chief."""
        called = time.time()
        result = ef.run(
            first_step, workers=2, data=self._rows, spark=self._spark, cluster=self._cluster, verbose=False
        )
        began, ended = result.value
        self.models.append(ended - began)
        return float(ended - called)


def seconds_to_import() -> float:
    """Import TensorFlow and Keras in two processes at once; return the seconds until both have."""
    started = time.time()
    importing = [subprocess.Popen([sys.executable, "-c", "import keras, tensorflow"]) for _ in range(2)]
    for process in importing:
        process.wait()
    return time.time() - started


def session() -> "SparkSession":
    """Return a session of two executors, on loopback."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
    for setting in ("spark.driver.host", "spark.driver.bindAddress"):
        builder = builder.config(setting, "127.0.0.1")
    return builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()


def main() -> None:
    """Measure in turn, print the line."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else REPEATS
    spark = session()
    with ef.cluster(workers=2, spark=spark, verbose=False) as cluster:
        sides = {"cold": Side(spark, None), "warm": Side(spark, cluster)}
        for side in sides.values():
            side.seconds_to_first_step()  # Spark's own first job is not what is measured
            side.models.clear()
        measured = {name: side.seconds_to_first_step for name, side in sides.items()}
        figures = alternate({**measured, "import": seconds_to_import}, repeats)
    beyond = {
        name: [total - model for total, model in zip(figures[name], sides[name].models, strict=True)]
        for name in sides
    }
    beyond["cold, and import"] = [
        each - taken for each, taken in zip(beyond["cold"], figures["import"], strict=True)
    ]
    spark.stop()
    print_result(
        "warm",
        {
            "seconds_to_first_step": {name: summary(figures[name]) for name in sides},
            "import": summary(figures["import"]),
            "of_which_model": {name: summary(side.models) for name, side in sides.items()},
            "beyond_model": {name: summary(each) for name, each in beyond.items()},
        },
    )


if __name__ == "__main__":
    main()
