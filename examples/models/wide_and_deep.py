"""Wide and deep: strings looked up in the model, beside numbers; one input for each column.

python examples/models/wide_and_deep.py
python examples/models/wide_and_deep.py --tiny
"""

import argparse
from typing import Any

import emberflow as ef

CITIES = ["Berlin", "Lagos", "Lima", "Osaka"]
PLANS = ["basic", "plus"]
NUMBERS = ["age", "visits"]


def customers(spark: Any, rows: int) -> Any:
    """Return customers of whom those on one plan in two cities, and those with many visits, stay."""
    from pyspark.sql import functions as F

    def one_of(words: list[str], seed: int) -> Any:
        return F.element_at(F.array(*map(F.lit, words)), 1 + F.floor(F.rand(seed) * len(words)).cast("int"))

    frame = spark.range(rows).select(
        one_of(CITIES, 1).alias("city"),
        one_of(PLANS, 2).alias("plan"),
        (18 + 60 * F.rand(3)).alias("age"),
        F.floor(20 * F.rand(4)).cast("double").alias("visits"),
    )
    stays = ((F.col("plan") == "plus") & F.col("city").isin("Lima", "Osaka")) | (F.col("visits") > 14)
    return frame.withColumn("label", stays.cast("int"))


def build_model() -> Any:
    import keras

    layers = keras.layers
    city, plan = (keras.Input((), dtype="string", name=name) for name in ("city", "plan"))
    age, visits = (keras.Input((1,), name=name) for name in NUMBERS)
    one_city = layers.StringLookup(vocabulary=CITIES, output_mode="one_hot")(city)
    one_plan = layers.StringLookup(vocabulary=PLANS, output_mode="one_hot")(plan)
    crossed = layers.HashedCrossing(64, output_mode="one_hot")((city, plan))  # wide: each pair has a weight
    numbers = layers.Concatenate()([layers.Rescaling(1 / 78)(age), layers.Rescaling(1 / 20)(visits)])
    deep = layers.Concatenate()([numbers, one_city, one_plan])
    for units in (16, 16):
        deep = layers.Dense(units, activation="relu")(deep)
    stays = layers.Dense(1, activation="sigmoid")(layers.Concatenate()([crossed, deep]))
    model = keras.Model([city, plan, age, visits], stays)
    model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy", "auc"])
    return model


def main(spark: Any, rows: int) -> float:
    train, test = customers(spark, rows).randomSplit([0.8, 0.2], seed=1)
    estimator = ef.KerasEstimator(
        model=build_model, featuresCols=["city", "plan", *NUMBERS], epochs=6, numWorkers=2
    )
    scored = estimator.fit(train).transform(test)
    scored.select("city", "plan", "visits", "label", "prediction").show(3)
    return float(scored.where("label = prediction").count() / scored.count())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Strings beside numbers, wide and deep.")
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--tiny", action="store_true", help="few rows: does it run here?")
    options = parser.parse_args()

    from pyspark.sql import SparkSession

    session = SparkSession.builder.getOrCreate()
    print(f"test accuracy {main(session, 1500 if options.tiny else options.rows):.3f}")
