"""The programs that the benchmark `train` starts, each a process of its own: ``python train_side.py PROGRAM FOLDER``.

Nothing but PySpark and the program's own library is imported at the top: one of them runs in another environment.
The last line on standard output is JSON.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
}
BATCH_ROWS = 64  # of one worker


def session(workers: int) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local-cluster[{workers},1,1024]").appName("train")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def build_model(keras: Any = None) -> Any:
    """Return the network of TensorFlowOnSpark's MNIST example, which takes bytes from 0 to 255 here."""
    if keras is None:
        import keras
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.InputLayer((28, 28, 1)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.SGD(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def clock() -> Any:
    """Return a callback that adds this process's clocks to what Keras logs after each epoch."""
    import keras

    class Clock(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:  # noqa: ARG002
            logs["cpu"], logs["wall"] = time.process_time(), time.monotonic()

    return Clock()


def speeds(rows: int, history: dict[str, list[float]]) -> dict[str, float]:
    """Return rows per CPU-second and per second of all epochs but the first, which traces and warms up."""
    spent = {name: history[name][-1] - history[name][0] for name in ("cpu", "wall")}
    trained = rows * (len(history["cpu"]) - 1)
    return {"rows_per_cpu_second": trained / spent["cpu"], "rows_per_second": trained / spent["wall"]}


def in_memory(folder: Path, epochs: int) -> dict[str, Any]:
    """Keras alone: all rows in memory, one process."""
    import keras
    import numpy as np

    rows = np.load(folder / "rows.npz")
    keras.utils.set_random_seed(0)
    history = build_model().fit(
        rows["image"], rows["label"], batch_size=BATCH_ROWS, epochs=epochs, verbose=0, callbacks=[clock()]
    )
    return speeds(len(rows["label"]), history.history)


def estimator(folder: Path, epochs: int) -> dict[str, Any]:
    """KerasEstimator with one worker: rows come from Spark, in the first epoch."""
    import emberflow as ef

    spark = session(1)
    rows = spark.read.parquet(str(folder / "rows.parquet"))
    model = ef.KerasEstimator(
        model=build_model,
        callbacks=[clock()],
        featuresCol="image",
        labelCol="label",
        batchSize=BATCH_ROWS,
        epochs=epochs,
        numWorkers=1,
        verbose=False,
    ).fit(rows)
    figures = speeds(rows.count(), model.history)
    spark.stop()
    return figures


def csv_emberflow(folder: Path, epochs: int) -> dict[str, Any]:
    """One epoch over a csv file by KerasEstimator with two workers."""
    from pyspark.sql import functions as F

    import emberflow as ef

    started = time.monotonic()
    spark = session(2)
    begun = time.monotonic()
    numbers = F.split("value", ",").cast("array<smallint>")
    rows = spark.read.text(str(folder / "rows.csv")).select(
        F.slice(numbers, 1, 784).alias("image"), numbers[784].alias("label")
    )
    model = ef.KerasEstimator(
        model=build_model,
        featuresCol="image",
        labelCol="label",
        batchSize=BATCH_ROWS,
        epochs=epochs,
        numWorkers=2,
        verbose=False,
    ).fit(rows)
    fitted = time.monotonic()
    model.save(str(folder / "emberflow"))
    saved = time.monotonic()
    assert "tensorflow" not in sys.modules, "the driver has imported TensorFlow, which only the nodes need"
    assert model.result is not None
    seen = sum(report.feed["rows"] for report in model.result.reports)
    node = max(report.seconds for report in model.result.reports)
    spark.stop()
    seconds = {"session": begun - started, "fit": fitted - begun, "in_node": node, "save": saved - fitted}
    return {
        "rows": seen,
        "accuracy": model.history["accuracy"][-1],
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
    }


def csv_tfos(folder: Path, epochs: int) -> dict[str, Any]:
    """The same by TensorFlowOnSpark, after its own MNIST example: rows one by one, nine tenths of the steps."""
    from tensorflowonspark import TFCluster

    spark = session(2)
    lines = spark.sparkContext.textFile(str(folder / "rows.csv"))
    rows = lines.map(lambda line: [int(number) for number in line.split(",")]).map(
        lambda numbers: (numbers[:784], numbers[784])
    )
    arguments = {
        "rows": sum(1 for _ in (folder / "rows.csv").open()),
        "folder": str(folder),
        "epochs": epochs,
    }
    cluster = TFCluster.run(
        spark.sparkContext,
        train_tfos,
        arguments,
        num_executors=2,
        num_ps=0,
        input_mode=TFCluster.InputMode.SPARK,
        master_node="chief",
    )
    cluster.train(rows, epochs)
    cluster.shutdown()
    spark.stop()
    return json.loads((folder / "tfos.json").read_text())  # type: ignore[no-any-return]


def train_tfos(arguments: dict[str, Any], ctx: Any) -> None:
    """Train on one node; legacy Keras, since the `fit` of Keras 3 fails under the strategy."""
    import numpy as np
    import tf_keras

    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    feed = ctx.get_data_feed(True)
    taken = [0]

    def generate() -> Any:
        while not feed.should_stop():
            batch = feed.next_batch(1)
            if not batch:
                return
            taken[0] += 1
            yield np.array(batch[0][0], np.float32).reshape(28, 28, 1), np.array([batch[0][1]])

    specs = (tf.TensorSpec((28, 28, 1), tf.float32), tf.TensorSpec((1,), tf.int64))
    rows = tf.data.Dataset.from_generator(generate, output_signature=specs)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    rows = rows.with_options(options).batch(BATCH_ROWS)
    steps = int(arguments["rows"] / BATCH_ROWS / ctx.num_workers * 0.9)
    with strategy.scope():
        model = build_model(tf_keras)
    history = model.fit(rows, epochs=arguments["epochs"], steps_per_epoch=steps, verbose=0).history
    model.save(f"{arguments['folder']}/tfos-{ctx.job_name}")  # all must: saving reads variables of all
    if ctx.job_name == "chief":
        # A batch of this dataset is a global one: TensorFlow divides it by the number of replicas.
        seen = steps * BATCH_ROWS * arguments["epochs"]
        figures = {"rows": seen, "taken_by_chief": taken[0], "accuracy": history["accuracy"][-1]}
        Path(arguments["folder"], "tfos.json").write_text(json.dumps(figures))
    feed.terminate()


PROGRAMS = {
    "in_memory": in_memory,
    "estimator": estimator,
    "csv_emberflow": csv_emberflow,
    "csv_tfos": csv_tfos,
}

if __name__ == "__main__":
    print("\n" + json.dumps(PROGRAMS[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))), flush=True)
