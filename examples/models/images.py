"""Images: a binary column of pixels into a small CNN that moves and mirrors them while it trains.

python examples/models/images.py
python examples/models/images.py --tiny
"""

import argparse
from typing import Any

import emberflow as ef

SIDE = 16


def images(spark: Any, rows: int) -> Any:
    """Return gray images of SIDE x SIDE bytes: stripes that lie, or stripes that stand, with noise."""
    import numpy as np

    random = np.random.default_rng(0)
    stripes = np.tile((np.arange(SIDE) // 2 % 2 * 120)[:, None], (1, SIDE))
    pixels = []
    for number in range(rows):
        clear = stripes if number % 2 else stripes.T
        pixels.append((clear + random.integers(0, 120, (SIDE, SIDE))).astype(np.uint8).tobytes())
    return spark.createDataFrame(
        [(bytearray(image), number % 2) for number, image in enumerate(pixels)], "image binary, label int"
    )


def build_model() -> Any:
    import keras

    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((SIDE, SIDE, 1)),
            layers.Rescaling(1 / 255),
            layers.RandomFlip(seed=1),
            layers.RandomTranslation(0.1, 0.1, seed=2),
            layers.Conv2D(8, 5, activation="relu"),
            layers.GlobalMaxPooling2D(),
            layers.Dense(2, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.02), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def main(spark: Any, rows: int) -> float:
    train, test = images(spark, rows).randomSplit([0.8, 0.2], seed=1)
    estimator = ef.KerasEstimator(model=build_model, featuresCol="image", epochs=4, numWorkers=2)
    scored = estimator.fit(train).transform(test)
    scored.select("label", "prediction", "probability").show(3, truncate=False)
    return float(scored.where("label = prediction").count() / scored.count())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A small CNN on images.")
    parser.add_argument("--rows", type=int, default=1200)
    parser.add_argument("--tiny", action="store_true", help="few rows: does it run here?")
    options = parser.parse_args()

    from pyspark.sql import SparkSession

    session = SparkSession.builder.getOrCreate()
    print(f"test accuracy {main(session, 500 if options.tiny else options.rows):.3f}")
