"""Text: a string column straight into a model that splits it into words itself (TextVectorization).

python examples/models/text.py
python examples/models/text.py --tiny
"""

import argparse
from typing import Any

import emberflow as ef

GOOD = ["lovely", "warm", "friendly", "clean", "generous", "fresh"]
BAD = ["rude", "cold", "dirty", "noisy", "stale", "late"]
PLAIN = ["the", "room", "staff", "food", "was", "and", "we", "were", "very"]


def reviews(spark: Any, rows: int) -> Any:
    """Return reviews of eight words: the label says whether their one telling word is a good one."""
    from pyspark.sql import functions as F

    def word(words: list[str], seed: int) -> Any:
        return F.element_at(F.array(*map(F.lit, words)), 1 + F.floor(F.rand(seed) * len(words)).cast("int"))

    label = (F.rand(1) < 0.5).cast("int")
    telling = F.when(F.col("label") == 1, word(GOOD, 2)).otherwise(word(BAD, 3))
    filler = [word(PLAIN, seed) for seed in range(4, 11)]
    text = F.concat_ws(" ", F.shuffle(F.array(telling, *filler), F.lit(0)))
    return spark.range(rows).select(label.alias("label")).withColumn("text", text)


def vocabulary(frame: Any, size: int = 1000) -> list[str]:
    """Return the most frequent words, counted by Spark."""
    from pyspark.sql import functions as F

    words = frame.select(F.explode(F.split("text", " ")).alias("word")).groupBy("word").count()
    return [row.word for row in words.orderBy(F.desc("count"), "word").limit(size).collect()]


def build_model(words: list[str]) -> Any:
    import keras

    layers = keras.layers
    text = keras.Input((), dtype="string", name="text")
    numbers = layers.TextVectorization(vocabulary=words, output_sequence_length=16)(text)
    average = layers.GlobalAveragePooling1D()(layers.Embedding(len(words) + 2, 8, mask_zero=True)(numbers))
    model = keras.Model(text, layers.Dense(1, activation="sigmoid")(average))
    model.compile(keras.optimizers.Adam(0.02), "binary_crossentropy", metrics=["accuracy"])
    return model


def main(spark: Any, rows: int) -> float:
    frame = reviews(spark, rows)
    train, test = frame.randomSplit([0.8, 0.2], seed=1)
    words = vocabulary(train)
    estimator = ef.KerasEstimator(
        model=lambda: build_model(words), featuresCol="text", epochs=4, numWorkers=2
    )
    scored = estimator.fit(train).transform(test)
    scored.select("text", "label", "prediction").show(3, truncate=False)
    return float(scored.where("label = prediction").count() / scored.count())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Classify text.")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--tiny", action="store_true", help="few rows: does it run here?")
    options = parser.parse_args()

    from pyspark.sql import SparkSession

    session = SparkSession.builder.getOrCreate()
    print(f"test accuracy {main(session, 600 if options.tiny else options.rows):.3f}")
