"""Two towers: users and items meet in one space; two outputs, whether a user clicks and which rating follows.

python examples/models/two_towers.py
python examples/models/two_towers.py --tiny
"""

import argparse
from typing import Any

import emberflow as ef

USERS, ITEMS, TASTES = 40, 60, 4


def ratings(spark: Any, rows: int) -> Any:
    """Return pairs of users and items: a user clicks on the items of his taste, and rates them higher."""
    from pyspark.sql import functions as F

    pairs = spark.range(rows).select(
        F.floor(F.rand(1) * USERS).alias("user"), F.floor(F.rand(2) * ITEMS).alias("item")
    )
    fits = F.col("user") % TASTES == F.col("item") % TASTES
    return pairs.withColumn("click", fits.cast("int")).withColumn("rating", F.when(fits, 4.5).otherwise(1.5))


def build_model() -> Any:
    import keras

    layers = keras.layers
    user = keras.Input((), dtype="int64", name="user")
    item = keras.Input((), dtype="int64", name="item")
    towers = [layers.Embedding(USERS, 8)(user), layers.Embedding(ITEMS, 8)(item)]
    met = layers.Multiply()(towers)
    click = layers.Dense(1, activation="sigmoid", name="click")(met)
    rating = layers.Dense(1, name="rating")(met)
    model = keras.Model([user, item], {"click": click, "rating": rating})
    model.compile(keras.optimizers.Adam(0.03), {"click": "binary_crossentropy", "rating": "mse"})
    return model


def main(spark: Any, rows: int) -> float:
    train, test = ratings(spark, rows).randomSplit([0.8, 0.2], seed=1)
    estimator = ef.KerasEstimator(
        model=build_model,
        featuresCols=["user", "item"],
        labelCols=["click", "rating"],
        epochs=6,
        numWorkers=2,
    )
    scored = estimator.fit(train).transform(test)
    scored.select("user", "item", "prediction_click", "prediction_rating").show(3)
    return float(scored.where("click = prediction_click").count() / scored.count())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Users and items in one space.")
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--tiny", action="store_true", help="few rows: does it run here?")
    options = parser.parse_args()

    from pyspark.sql import SparkSession

    session = SparkSession.builder.getOrCreate()
    print(f"clicks predicted right {main(session, 2000 if options.tiny else options.rows):.3f}")
