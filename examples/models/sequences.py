"""Sequences of any length: an array column into an LSTM, padded to the longest row of all.

python examples/models/sequences.py
python examples/models/sequences.py --tiny
"""

import argparse
from typing import Any

import emberflow as ef

SYMBOLS = 10


def sequences(spark: Any, rows: int) -> Any:
    """Return 3 to 12 symbols a row, from 1 on; the label says whether the last symbol of all is among them."""
    from pyspark.sql import functions as F

    length = 3 + F.floor(F.rand(1) * 10).cast("int")
    places = [1 + F.floor(F.rand(seed) * SYMBOLS).cast("int") for seed in range(2, 14)]
    symbols = F.slice(F.array(*places), 1, length)
    return (
        spark.range(rows)
        .select(symbols.alias("symbols"))
        .withColumn("label", F.array_contains("symbols", F.lit(SYMBOLS)).cast("int"))
    )


def build_model() -> Any:
    import keras

    layers = keras.layers
    symbols = keras.Input((None,), dtype="int32", name="symbols")
    vectors = layers.Embedding(SYMBOLS + 1, 8, mask_zero=True)(symbols)  # 0 is padding
    model = keras.Model(symbols, layers.Dense(1, activation="sigmoid")(layers.LSTM(16)(vectors)))
    model.compile(keras.optimizers.Adam(0.02), "binary_crossentropy", metrics=["accuracy"])
    return model


def main(spark: Any, rows: int) -> float:
    train, test = sequences(spark, rows).randomSplit([0.8, 0.2], seed=1)
    estimator = ef.KerasEstimator(model=build_model, featuresCol="symbols", epochs=6, numWorkers=2)
    scored = estimator.fit(train).transform(test)
    scored.select("symbols", "label", "prediction").show(3, truncate=False)
    return float(scored.where("label = prediction").count() / scored.count())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="An LSTM on sequences of any length.")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--tiny", action="store_true", help="few rows: does it run here?")
    options = parser.parse_args()

    from pyspark.sql import SparkSession

    session = SparkSession.builder.getOrCreate()
    print(f"test accuracy {main(session, 800 if options.tiny else options.rows):.3f}")
