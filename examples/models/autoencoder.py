"""An autoencoder: the label is the features; rows that it cannot rebuild are the unusual ones.

python examples/models/autoencoder.py
python examples/models/autoencoder.py --tiny
"""

import argparse
from typing import Any

import emberflow as ef

SENSORS = 12


def readings(spark: Any, rows: int) -> Any:
    """Return readings of sensors that follow two causes; one row in a hundred is broken: one sensor follows none."""
    from pyspark.sql import functions as F

    a, b = F.col("a"), F.col("b")
    sensors = [a * ((i % 5) / 4) + b * ((i % 3) / 2) + 0.01 * F.randn(i) for i in range(SENSORS - 1)]
    last = F.when(F.col("broken"), 3.0).otherwise(a + b)
    frame = spark.range(rows).select(
        F.randn(100).alias("a"), F.randn(101).alias("b"), (F.rand(102) < 0.01).alias("broken")
    )
    return frame.select("broken", F.array(*sensors, last).cast("array<float>").alias("features"))


def build_model() -> Any:
    import keras

    layers = keras.layers
    model = keras.Sequential([keras.Input((SENSORS,)), layers.Dense(2), layers.Dense(SENSORS)])
    model.compile(keras.optimizers.Adam(0.02), "mse")
    return model


def main(spark: Any, rows: int) -> float:
    """Return which part of the broken rows is among as many rows with the largest error."""
    from pyspark.sql import functions as F

    frame = readings(spark, rows)
    usual = frame.where("not broken")
    model = ef.KerasEstimator(model=build_model, labelCol="features", epochs=5, numWorkers=2).fit(usual)
    squares = F.zip_with("features", "prediction", lambda x, y: (x - y) ** 2)
    error = F.aggregate(squares, F.lit(0.0), lambda total, square: total + square)
    scored = model.transform(frame).withColumn("error", error)
    scored.orderBy(F.desc("error")).select("broken", "error").show(3)
    broken = frame.where("broken").count()
    found = scored.orderBy(F.desc("error")).limit(broken).where("broken").count()
    return float(found / broken)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Find broken sensors with an autoencoder.")
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--tiny", action="store_true", help="few rows: does it run here?")
    options = parser.parse_args()

    from pyspark.sql import SparkSession

    session = SparkSession.builder.getOrCreate()
    print(f"broken rows found {main(session, 1500 if options.tiny else options.rows):.3f}")
