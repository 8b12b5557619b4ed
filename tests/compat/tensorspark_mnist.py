"""The MNIST program of tensorspark's README with its TensorFlow import changed, on small images of its own.

Run as a program of its own, since a graph of TensorFlow 1 is for a whole process: ``tensorspark_mnist.py MASTER``.
It prints one line of JSON.
"""

import json
import sys

import numpy as np
import tensorflow.compat.v1 as tf
from pyspark import SparkConf, SparkContext

import emberflow as ef
import tensorspark.core.partitioner as par
import tensorspark.core.spark_session as sps
import tensorspark.core.weight_combiner as comb

ROWS, PIXELS = 400, 784
SHAPES = {"Variable:0": (PIXELS, 10), "Variable_1:0": (10,)}  # of W and b


class Noted(comb.DeltaWeightCombiner):
    """A combiner of the user's own: it must be told who pushes which variable, in its shape."""

    def compute(self, origin_weight, new_weight, worker_id=-1, name=None):  # type: ignore[no-untyped-def]
        if worker_id not in (0, 1) or SHAPES.get(name) != origin_weight.shape:
            raise ValueError(f"{worker_id} {name} {origin_weight.shape}")
        return super().compute(origin_weight, new_weight, worker_id=worker_id, name=name)


def images() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    labels = np.arange(ROWS) % 10
    # Most pixels are black, as in MNIST: the README's learning rate diverges on others.
    prototypes = random.random((10, PIXELS)) * (random.random((10, PIXELS)) < 0.15)
    return (prototypes[labels] + 0.1 * random.random((ROWS, PIXELS))) / 1.1, np.eye(10)[labels]


def trained_here(rows: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return what one step on all rows makes of W, in this process alone."""
    with tf.Session() as alone:
        alone.run(init)
        alone.run(train_step, {x: rows[0], y_: rows[1]})
        return alone.run(W)


sc = SparkContext(conf=SparkConf().setMaster(sys.argv[1]).set("spark.ui.enabled", "false"))
pixels, labels = images()
image_label_rdd = sc.parallelize(list(zip(pixels, labels, strict=True)), 2)

# initialize the learning model exactly as Tensorflow
x = tf.placeholder(tf.float32, [None, 784])
W = tf.Variable(tf.zeros([784, 10]))
b = tf.Variable(tf.zeros([10]))
y = tf.nn.softmax(tf.matmul(x, W) + b)
y_ = tf.placeholder(tf.float32, [None, 10])
cross_entropy = tf.reduce_mean(-tf.reduce_sum(y_ * tf.log(y), reduction_indices=[1]))
train_step = tf.train.GradientDescentOptimizer(0.5).minimize(cross_entropy)
init = tf.initialize_all_variables()
sess = tf.Session()
sess.run(init)
feed_name_list = [x.name, y_.name]
param_list = [W, b]
accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(y, 1), tf.argmax(y_, 1)), tf.float32))

try:
    sps.SparkSession(None, sess)  # Spark Connect has no context to give
    refused = ""
except ef.ClusterError as error:
    refused = str(error)

# One worker and one step: exactly what one process does.
whole = sps.SparkSession(sc, sess, batch_size=ROWS)
done = whole.run(
    train_step, feed_rdd=image_label_rdd.coalesce(1), feed_name_list=feed_name_list, param_list=param_list
)
exact = float(np.abs(sess.run(W) - trained_here((pixels, labels))).max())
sess.run(init)

# As the README has it.
spark_sess = sps.SparkSession(
    sc,
    sess,
    user="liangfengsid",
    name="spark_mnist",
    server_host="localhost",
    server_port=10080,
    sync_interval=100,
    batch_size=10,
)
spark_sess.run(
    train_step,
    feed_rdd=image_label_rdd,
    feed_name_list=feed_name_list,
    param_list=param_list,
    shuffle_within_partition=True,
)
told = {
    "refused": refused,
    "done": done,
    "exact": exact,
    "mean": float(spark_sess.run(accuracy, feed_dict={x: pixels, y_: labels})),
}

if "all" in sys.argv[2:]:
    sess.run(init)
    again = image_label_rdd
    for _ in range(2):
        spark_sess.run(
            [train_step, cross_entropy],
            feed_rdd=again,
            feed_name_list=feed_name_list,
            param_list=param_list,
            weight_combiner=Noted(),
            options=tf.RunOptions(timeout_in_ms=60_000),
            server_reusable=True,
        )
        again = image_label_rdd.partitionBy(5, par.RandomPartitioner(5)).cache()  # more than there are slots
    spark_sess.stop_param_server()
    told["delta"] = float(sess.run(accuracy, {x: pixels, y_: labels}))
    told["operations"] = len(sess.graph.get_operations())
    spark_sess.run(
        train_step,
        feed_rdd=again,
        feed_name_list=feed_name_list,
        param_list=param_list,
        weight_combiner=Noted(),
    )
    told["grew"] = len(sess.graph.get_operations()) - told.pop("operations")

print("told " + json.dumps(told))
sc.stop()
