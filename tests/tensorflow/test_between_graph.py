"""A TensorFlow 1 program with flags and `tf.compat.v1.train.Server`, started from the cluster spec."""

import time
from typing import TYPE_CHECKING

from examples.between_graph import train

import emberflow as ef

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_workers_update_the_ps_asynchronously(spark_gpus: "SparkSession", nothing_left: None) -> None:
    started = time.monotonic()
    result = ef.run(train, workers=2, ps=1, spark=spark_gpus, verbose=False)
    print(
        f"between-graph run: {time.monotonic() - started:.1f} s, nodes {[r.seconds for r in result.reports]}"
    )

    chief, worker, ps = result.reports
    assert ps.role == "ps"
    assert ps.value is None  # it sat in server.join() until the workers were done
    assert "/job:ps" in chief.value["ps"]
    # While both run each sees the other's updates in between its own: the shared counter skips.
    both = range(
        max(chief.value["steps"][0], worker.value["steps"][0]),
        min(chief.value["steps"][-1], worker.value["steps"][-1]),
    )
    assert len(both) > 20, "the two workers did not run at the same time"
    assert 0 < sum(step in both for step in chief.value["steps"]) < len(both)
    assert chief.value["loss"] < 0.01
