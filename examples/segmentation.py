"""Image segmentation: a U-Net that says of each pixel whether it is background, disc or square.

    python examples/segmentation.py                  a Spark of its own, on this machine
    python examples/segmentation.py --tiny

The program trains on a DataFrame of images and masks, both binary columns, exports a SavedModel, and scores another
DataFrame with it. The shapes are synthetic: nothing has to be downloaded.
"""

import argparse
import tempfile
from functools import partial
from typing import Any

import emberflow as ef

SIDE = 32
KINDS = ("background", "disc", "square")


def shapes(spark: Any, rows: int, first: int = 0) -> Any:
    """Return noisy images of one disc and one square each, with the kind of each pixel, made by the executors."""
    import numpy as np

    def draw(batches: Any) -> Any:
        import pyarrow as pa

        across, down = np.meshgrid(np.arange(SIDE), np.arange(SIDE))
        for batch in batches:
            pictures: dict[str, list[Any]] = {"image": [], "mask": []}
            for number in batch["id"].to_pylist():
                random = np.random.default_rng(number)
                (x1, y1), (x2, y2) = random.integers(6, SIDE - 6, (2, 2))
                mask = np.zeros((SIDE, SIDE), np.uint8)
                mask[(abs(across - x2) < 5) & (abs(down - y2) < 5)] = 2
                mask[(across - x1) ** 2 + (down - y1) ** 2 < 25] = 1
                image = np.array([60, 130, 200])[mask] + random.normal(0, 20, mask.shape)
                pictures["image"].append(image.clip(0, 255).astype(np.uint8).tobytes())
                pictures["mask"].append(mask.tobytes())
            yield pa.RecordBatch.from_pydict(pictures)

    return spark.range(first, first + rows, 1, 2).mapInArrow(draw, "image binary, mask binary")


def build_model() -> Any:
    """Build a U-Net: three levels down, three up, each level joined with its counterpart."""
    import keras

    layers = keras.layers

    def convolve(x: Any, filters: int) -> Any:
        return layers.Conv2D(filters, 3, padding="same", activation="relu", kernel_initializer="he_normal")(x)

    image = keras.Input((SIDE, SIDE, 1), name="image")
    x = layers.Rescaling(1 / 64, offset=-2)(image)
    levels = []
    for filters in (8, 16, 32):
        x = convolve(x, filters)
        levels.append(x)
        x = layers.MaxPooling2D()(x)
    x = convolve(x, 64)
    for level in reversed(levels):
        x = layers.Conv2DTranspose(level.shape[-1], 2, strides=2)(x)
        x = convolve(layers.Concatenate()([x, level]), level.shape[-1])
    model = keras.Model(image, layers.Conv2D(len(KINDS), 1, activation="softmax")(x))
    model.compile(keras.optimizers.Adam(0.005), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def train(ctx: Any, path: str, epochs: int) -> str | None:
    """Train on all workers and export; runs on every node."""
    model = ctx.distribute(build_model())
    binary = {"image": "uint8", "mask": "uint8"}
    shape = {"image": (SIDE, SIDE, 1), "mask": (SIDE, SIDE)}
    rows = ctx.dataset(features="image", label="mask", batch_size=16, dtypes=binary, shapes=shape)
    for epoch in range(epochs):
        logged = model.fit(rows, epochs=1, verbose=0).history
        ctx.report(step=epoch, loss=logged["loss"][0], accuracy=logged["accuracy"][0])
    return ctx.export(model, path)


def right_pixels(scored: Any) -> tuple[int, int]:
    """Return how many pixels of the shapes were found, and how many there are."""
    import numpy as np

    found = there = 0
    for row in scored.toLocalIterator():
        mask = np.frombuffer(row["mask"], np.uint8).reshape(SIDE, SIDE)
        predicted = np.argmax(row["scores"], axis=-1)
        found += int(((predicted == mask) & (mask > 0)).sum())
        there += int((mask > 0).sum())
    return found, there


def main(spark: Any, rows: int, epochs: int, folder: str) -> float:
    """Return the share of the shapes' pixels that were found, in images that were not trained on."""
    path = f"{folder}/unet/1"
    result = ef.run(
        partial(train, path=path, epochs=epochs), workers=2, data=shapes(spark, rows), spark=spark
    )
    for metric in result.metrics:
        if metric.rank == 0:
            print(
                f"epoch {metric.step}: "
                + ", ".join(f"{name} {value:.3f}" for name, value in metric.values.items())
            )
    unseen = shapes(spark, 50, first=rows)
    found, there = right_pixels(ef.predict(unseen, path, outputs="scores", dtypes={"image": "uint8"}))
    return found / there


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Segment synthetic images with a U-Net.")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="few images: does it run here?")
    options = parser.parse_args()

    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[2]").getOrCreate()
    with tempfile.TemporaryDirectory() as name:
        size = (400, 6) if options.tiny else (options.rows, options.epochs)
        print(f"pixels of shapes that were found {main(session, *size, name):.3f}")
