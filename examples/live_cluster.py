"""A cluster that stays up: trained on one DataFrame after the other, then asked for predictions, then stopped.

The nodes start once, and import TensorFlow once; the model stays in their memory between the calls.

    python examples/live_cluster.py
    python examples/live_cluster.py --help
"""

import argparse
from typing import Any

DAYS = ("monday", "tuesday")


def build_model() -> Any:
    import keras

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.02), "mse")
    return model


def learn_then_answer(ctx: Any) -> float:
    """Train on the rounds of all days, then answer requests; return the last loss. Runs on every node."""
    model = ctx.distribute(build_model())
    loss = 0.0
    for each in ctx.rounds():  # one for each epoch of each cluster.train
        history = model.fit(each.dataset(features="x", label="y", batch_size=32), verbose=0)
        loss = history.history["loss"][-1]
        ctx.report(step=each.number * each.epochs + each.epoch, loss=loss)
        if each.number == len(DAYS) - 1 and each.epoch == each.epochs - 1:
            break  # all days are learnt; each node holds the same weights
    for request in ctx.requests():  # until cluster.stop
        request.reply(model.predict_on_batch(request.numpy("x")["x"])[:, 0])
    return float(loss)


def measurements(spark: Any, rows: int, seed: int) -> Any:
    """Return rows of two numbers and their product."""
    from pyspark.sql import functions as F

    x = F.array(F.rand(seed), F.rand(seed + 1)).cast("array<float>").alias("x")
    return spark.range(rows).select("id", x).withColumn("y", F.col("x")[0] * F.col("x")[1])


def main(spark: Any, rows: int, epochs: int) -> float:
    """Return the mean squared error of the predictions."""
    from pyspark.sql import functions as F

    import emberflow as ef

    with ef.cluster(learn_then_answer, workers=2, spark=spark) as cluster:
        for number, day in enumerate(DAYS):
            fed = cluster.train(measurements(spark, rows, seed=10 * number), epochs=epochs)
            print(f"{day}: {fed.rows} rows, epochs={epochs}, {fed.seconds:.1f} s")
        asked = measurements(spark, rows, seed=100)
        answered = cluster.infer(asked, schema="prediction float")
        error = answered.select(F.mean((F.col("prediction") - F.col("y")) ** 2)).first()[0]
    print(f"the last loss of training was {cluster.stop().value:.4f}")
    return float(error)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train, ask and stop a cluster that stays up.")
    parser.add_argument("--rows", type=int, default=5000, help="rows of each day")
    parser.add_argument("--epochs", type=int, default=5, help="how often each day's rows are trained on")
    parser.add_argument("--tiny", action="store_true", help="a few rows and one epoch: does it run here?")
    options = parser.parse_args()

    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[2]").getOrCreate()
    size = (200, 1) if options.tiny else (options.rows, options.epochs)
    print(f"mean squared error of the predictions {main(session, *size):.4f}")
