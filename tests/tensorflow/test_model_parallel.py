"""Layers on two nodes, driven by the chief: the same numbers as in one process."""

import time
from typing import TYPE_CHECKING, Any

import emberflow as ef

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS = 5


def train(devices: tuple[str, str]) -> dict[str, Any]:
    """Train two layers, each on its own device; return losses, weights and where the layers were."""
    import numpy as np

    import tensorflow as tf

    random = np.random.default_rng(0)
    x = random.normal(size=(32, 8)).astype("float32")
    y = random.normal(size=(32, 1)).astype("float32")
    shapes = [(8, 16), (16, 1)]
    layers = []
    for device, shape in zip(devices, shapes, strict=True):
        with tf.device(device):
            layers.append(tf.Variable(random.normal(size=shape).astype("float32")))

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            with tf.device(devices[0]):
                hidden = tf.nn.tanh(x @ layers[0])
            with tf.device(devices[1]):
                loss = tf.reduce_mean((hidden @ layers[1] - y) ** 2)
        for layer, gradient in zip(layers, tape.gradient(loss, layers), strict=True):
            with tf.device(layer.device):
                layer.assign_sub(0.05 * gradient)
        return loss

    losses = [float(step()) for _ in range(STEPS)]
    return {
        "losses": losses,
        "weights": [layer.numpy() for layer in layers],
        "devices": [layer.device for layer in layers],
    }


def drive(ctx: Any) -> dict[str, Any]:
    import tensorflow as tf

    if not ctx.is_chief:
        ctx.serve()  # until the chief is done
    tf.config.experimental_connect_to_cluster(
        tf.train.ClusterSpec(ctx.cluster_spec), job_name=ctx.role, task_index=ctx.index
    )
    return train(("/job:worker/task:0", "/job:worker/task:1"))


def test_layers_on_two_nodes_equal_one_process(spark_gpus: "SparkSession", nothing_left: None) -> None:
    import numpy as np

    started = time.monotonic()
    there = ef.run(drive, workers=3, spark=spark_gpus, verbose=False).value
    print(f"model-parallel run: {time.monotonic() - started:.1f} s")
    assert ["/job:worker/replica:0/task:0" in there["devices"][0], "/task:1" in there["devices"][1]] == [
        True
    ] * 2

    here = train(("/device:CPU:0", "/device:CPU:0"))
    np.testing.assert_allclose(there["losses"], here["losses"], rtol=1e-5)
    assert there["losses"][-1] < there["losses"][0]
    for one, other in zip(there["weights"], here["weights"], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
