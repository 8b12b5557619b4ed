"""Parameter servers with a ClusterCoordinator, beside workers that hold GPUs."""

import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

import emberflow as ef

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH = 20
MOST = 2000


def train(ctx: Any) -> dict[str, Any]:
    import tensorflow as tf

    ctx.report(gpus=len(tf.config.list_physical_devices("GPU")))
    strategy = ctx.strategy()  # the chief goes on; workers and ps serve it from here
    assert ctx.is_chief
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weight = tf.Variable(4.0)
        updates = tf.Variable(0, dtype=tf.int64)

    def rows() -> Any:
        # The moment at which a worker reads its first row is that worker's name.
        return tf.data.Dataset.from_tensors(1.0).map(lambda x: (tf.timestamp(), x)).cache().repeat()

    iterator = iter(coordinator.create_per_worker_dataset(rows))

    @tf.function
    def step(iterator: Any) -> Any:
        worker, x = next(iterator)
        with tf.GradientTape() as tape:
            loss = (weight * x - 1.0) ** 2
        weight.assign_sub(0.05 * tape.gradient(loss, weight))
        return worker, updates.assign_add(1)

    done: list[tuple[int, float]] = []
    while changes(done) < 6 and len(done) < MOST:
        values = [coordinator.schedule(step, args=(iterator,)) for _ in range(BATCH)]
        coordinator.join()
        done += [(int(at), float(worker)) for worker, at in coordinator.fetch(values)]
    return {
        "done": done,
        "updates": int(updates.numpy()),
        "weight": float(weight.numpy()),
        "placed": updates.device,
    }


def changes(done: list[tuple[int, float]]) -> int:
    """Count how often two neighbouring updates came from different workers."""
    return sum(one[1] != other[1] for one, other in pairwise(sorted(done)))


@pytest.mark.full
def test_updates_of_both_workers_interleave_on_the_ps(spark_gpus: "SparkSession", nothing_left: None) -> None:
    started = time.monotonic()
    result = ef.run(train, workers=3, ps=1, gpus=1, spark=spark_gpus, verbose=False)
    print(f"parameter server run: {time.monotonic() - started:.1f} s")

    value = result.value
    assert "/job:ps/replica:0/task:0" in value["placed"]
    assert len({worker for _, worker in value["done"]}) == 2
    assert changes(value["done"]) >= 6
    assert value["updates"] == len(value["done"])  # none is lost
    assert abs(value["weight"] - 1.0) < 1.0  # it began at 4
    assert [report.role for report in result.reports] == ["chief", "worker", "worker", "ps"]
    assert [len(report.devices) for report in result.reports] == [1, 1, 1, 0]
    seen = {metric.rank: metric.values["gpus"] for metric in result.metrics}
    assert seen[3] == 0.0  # the ps
