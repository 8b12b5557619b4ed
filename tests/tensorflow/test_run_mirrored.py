"""Custom training loops and legacy Keras under ctx.strategy(): two nodes take the very steps of one process."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import emberflow as ef

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS, ROWS, WIDTH = 8, 32, 5


def batches() -> list[tuple[Any, Any]]:
    """Return the global batches, the same for everybody."""
    random = np.random.default_rng(7)
    truth = random.normal(size=(WIDTH, 1))
    inputs = random.normal(size=(STEPS, ROWS, WIDTH)).astype("float32")
    return [(x, (x @ truth + 0.1 * random.normal(size=(ROWS, 1))).astype("float32")) for x in inputs]


def train(strategy: Any, rank: int, workers: int) -> tuple[list[float], list[Any]]:
    """Train a dense layer of plain variables; each worker takes its share of every batch."""
    import tensorflow as tf

    with strategy.scope():
        weight = tf.Variable(tf.fill([WIDTH, 1], 0.1))
        bias = tf.Variable([0.0])

    def replica_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((x @ weight + bias - y) ** 2) / ROWS  # rows of the global batch
        gradients = tape.gradient(loss, [weight, bias])
        summed = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        for variable, gradient in zip((weight, bias), summed, strict=True):
            variable.assign_sub(0.1 * gradient)
        return loss

    @tf.function
    def step(x: Any, y: Any) -> Any:
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(replica_step, args=(x, y)), axis=None)

    losses = []
    for x, y in batches():
        mine = slice(rank * ROWS // workers, (rank + 1) * ROWS // workers)
        losses.append(float(step(tf.constant(x[mine]), tf.constant(y[mine]))))
    return losses, [weight.numpy(), bias.numpy()]


def fit_legacy(strategy: Any) -> tuple[list[float], list[Any]]:
    """Train by the `fit` of Keras 2 (tf_keras) on the same global batches, which TensorFlow shares out."""
    import tf_keras

    import tensorflow as tf

    x, y = (np.concatenate(parts) for parts in zip(*batches(), strict=True))
    rows = tf.data.Dataset.from_tensor_slices((x, y)).batch(ROWS)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    with strategy.scope():
        tf_keras.utils.set_random_seed(5)
        model = tf_keras.Sequential([tf_keras.layers.Dense(4, "tanh"), tf_keras.layers.Dense(1)])
        model.compile(tf_keras.optimizers.SGD(0.05, momentum=0.9), "mse", metrics=["mae"])
    history = model.fit(rows.with_options(options), epochs=3, verbose=0).history
    return history["loss"] + history["mae"], model.get_weights()


@pytest.mark.usefixtures("nothing_left")
def test_losses_and_weights_of_two_workers_equal_those_of_one(spark_cluster: "SparkSession") -> None:
    def on_node(ctx: Any) -> Any:
        strategy = ctx.strategy()
        return train(strategy, ctx.rank, ctx.workers), fit_legacy(strategy)

    together = ef.run(on_node, workers=2, spark=spark_cluster)
    alone = ef.run(on_node, workers=1, spark=spark_cluster).value
    for report in together.reports:
        for (losses, weights), (wanted, theirs) in zip(report.value, alone, strict=True):
            np.testing.assert_allclose(losses, wanted, atol=1e-5, rtol=0)
            for ours, their in zip(weights, theirs, strict=True):
                np.testing.assert_allclose(ours, their, atol=1e-5, rtol=0)
    assert alone[0][0][-1] < alone[0][0][0] / 2  # it did learn
    assert alone[1][0][2] < alone[1][0][0] / 2
