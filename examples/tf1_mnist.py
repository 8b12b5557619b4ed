"""A graph of TensorFlow 1 on MNIST's images, with workers that exchange values with a server periodically.

    python examples/tf1_mnist.py                     a Spark of its own, on this machine
    python examples/tf1_mnist.py --tiny

Placeholders, a session and a training operation, as such programs have them. Each worker trains on its own rows at
its own pace; every few steps it sends its values to the parameter server, which averages those of all, and takes the
server's. No worker waits for another. The digits are synthetic; examples/mnist.py reads the real ones.
"""

import argparse
from functools import partial
from typing import Any

import emberflow as ef

SEGMENTS = ("abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgedc", "abc", "abcdefg", "abcdfg")
PLACES = {"a": (4, 6, 8, 20), "b": (5, 13, 18, 20), "c": (14, 22, 18, 20), "d": (21, 23, 8, 20)} | {
    "e": (14, 22, 8, 10),
    "f": (5, 13, 8, 10),
    "g": (12, 14, 8, 20),
}


def images(spark: Any, rows: int) -> Any:
    """Return digits of seven segments, shifted and noisy, as 784 bytes each."""
    import numpy as np

    def draw(batches: Any) -> Any:
        import pyarrow as pa

        for batch in batches:
            numbers, pixels = batch["id"].to_numpy(), []
            for number in numbers:
                random = np.random.default_rng(int(number))
                image = np.zeros((28, 28))
                for segment in SEGMENTS[number % 10]:
                    top, bottom, left, right = PLACES[segment]
                    image[top:bottom, left:right] = 200
                image = np.roll(image, random.integers(-2, 3, 2), (0, 1)) + random.normal(0, 30, image.shape)
                pixels.append(image.clip(0, 255).astype(np.uint8).tobytes())
            yield pa.RecordBatch.from_pydict({"image": pixels, "label": numbers % 10})

    return spark.range(0, rows, 1, 4).mapInArrow(draw, "image binary, label bigint")


def build_graph() -> tuple[Any, Any, Any]:
    """Return the training operation, the accuracy and the variables of a network with one hidden layer."""
    import tensorflow as tf

    tf1 = tf.compat.v1
    image = tf1.placeholder(tf.float32, [None, 784], "image")
    label = tf1.placeholder(tf.int64, [None], "label")
    with tf1.variable_scope("network", initializer=tf1.glorot_uniform_initializer(seed=1)):
        hidden = tf.nn.relu(image / 255 @ tf1.get_variable("w1", [784, 64]) + tf1.get_variable("b1", [1, 64]))
        logits = hidden @ tf1.get_variable("w2", [64, 10]) + tf1.get_variable("b2", [1, 10])
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits))
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), label), tf.float32))
    return tf1.train.GradientDescentOptimizer(0.1).minimize(loss), accuracy, tf1.trainable_variables()


def train(ctx: Any, epochs: int) -> float:
    """Train on this worker's rows; return the accuracy on those held out, the chief's with the server's values."""
    import tensorflow as tf

    def rows(name: str) -> Any:  # made outside of the graph
        options = {"dtypes": {"image": "uint8"}, "shapes": {"image": (784,)}}
        return ctx.dataset(name, features="image", label="label", batch_size=50, **options)

    training, held_out = rows("train"), list(rows("validation").as_numpy_iterator())
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        train_op, accuracy, variables = build_graph()
        session.run(tf.compat.v1.global_variables_initializer())
        sync = ctx.periodic_session(session, variables, interval=10, combiner="mean")
        for epoch in range(epochs):
            _, reached = sync.run([train_op, accuracy], ["image:0", "label:0"], training)
            ctx.report(step=epoch, accuracy=reached)
        sync.finish()
        right = [len(y) * session.run(accuracy, {"image:0": x, "label:0": y}) for x, y in held_out]
    return float(sum(right) / sum(len(y) for _, y in held_out))


def main(spark: Any, digits: Any, epochs: int) -> float:
    """Return the accuracy on images that were not trained on."""
    rows, held_out = digits.randomSplit([0.9, 0.1], seed=1)
    data = {"train": rows, "validation": held_out}
    program = partial(train, epochs=epochs)
    result = ef.run(program, workers=2, ps=1, strategy="periodic", data=data, spark=spark)
    for report in result.reports:
        print(f"{report.role} {report.index}: {report.value}")
    return float(result.value)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A TensorFlow 1 graph with a periodic parameter server.")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="few digits: does it run here?")
    chosen = parser.parse_args()

    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[3]").getOrCreate()  # two workers and the server
    rows, epochs = (2000, 10) if chosen.tiny else (chosen.rows, chosen.epochs)
    print(f"accuracy {main(session, images(session, rows), epochs):.3f}")
