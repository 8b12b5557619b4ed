"""A residual network on images of 32 x 32 x 3, as those of CIFAR-10, trained by all workers as one.

    python examples/resnet.py                        a Spark of its own, on this machine
    python examples/resnet.py --depth 56 --epochs 30
    python examples/resnet.py --tiny
    spark-submit --master yarn examples/resnet.py --workers 8 --gpus 1

The images are synthetic, so that nothing has to be downloaded: each class is a noisy pattern in its own colours.
For real ones read a DataFrame with the same columns: `image`, 3072 bytes, and `label`.
"""

import argparse
from functools import partial
from typing import Any

import emberflow as ef

SHAPE = (32, 32, 3)
CLASSES = 10


def images(spark: Any, rows: int) -> Any:
    """Return images as binary columns, made by the executors."""
    import numpy as np

    def draw(batches: Any) -> Any:
        import pyarrow as pa

        across, down = np.meshgrid(np.arange(32), np.arange(32))
        for batch in batches:
            numbers = batch["id"].to_numpy()
            pixels = []
            for number in numbers:
                random = np.random.default_rng(int(number))
                label = number % CLASSES
                angle, shift = np.pi * label / CLASSES, random.uniform(0, 2 * np.pi)
                wave = np.sin((across * np.cos(angle) + down * np.sin(angle)) * 0.7 + shift)
                colour = 0.5 + 0.5 * np.cos(label + np.arange(3))
                image = 128 + 90 * wave[..., None] * colour + random.normal(0, 25, SHAPE)
                pixels.append(image.clip(0, 255).astype(np.uint8).tobytes())
            yield pa.RecordBatch.from_pydict({"image": pixels, "label": numbers % CLASSES})

    return spark.range(0, rows, 1, 4).mapInArrow(draw, "image binary, label bigint")


def build_model(depth: int, steps: int) -> Any:
    """Build the network of He et al. for small images: depth = 6n + 2, three groups of n blocks."""
    import keras

    layers = keras.layers

    def convolve(x: Any, filters: int, size: int = 3, stride: int = 1) -> Any:
        x = layers.Conv2D(filters, size, stride, padding="same", use_bias=False)(x)
        return layers.BatchNormalization(momentum=0.9)(x)

    def block(x: Any, filters: int, stride: int) -> Any:
        inner = layers.ReLU()(convolve(x, filters, stride=stride))
        inner = convolve(inner, filters)
        if stride > 1 or x.shape[-1] != filters:
            x = convolve(x, filters, size=1, stride=stride)
        return layers.ReLU()(layers.Add()([inner, x]))

    image = keras.Input(SHAPE, name="image")
    x = layers.RandomTranslation(0.1, 0.1)(layers.Rescaling(1 / 128, offset=-1)(image))
    x = layers.ReLU()(convolve(x, 16))
    for filters in (16, 32, 64):
        for place in range((depth - 2) // 6):
            x = block(x, filters, stride=2 if place == 0 and filters > 16 else 1)
    model = keras.Model(image, layers.Dense(CLASSES, "softmax")(layers.GlobalAveragePooling2D()(x)))
    rate = keras.optimizers.schedules.CosineDecay(0.05, decay_steps=steps)
    optimizer = keras.optimizers.SGD(rate, momentum=0.9)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def main(spark: Any, options: argparse.Namespace) -> float:
    """Return the accuracy on images that were not trained on."""
    steps = options.epochs * options.rows // (options.batch_size * options.workers)
    estimator = ef.KerasEstimator(
        model=partial(build_model, options.depth, steps),
        featuresCol="image",
        labelCol="label",
        batchSize=options.batch_size,  # of one worker
        epochs=options.epochs,
        numWorkers=options.workers,
        gpusPerWorker=options.gpus,
    )
    train, test = images(spark, options.rows).randomSplit([0.9, 0.1], seed=1)
    scored = estimator.fit(train).transform(test)
    return float(scored.where("label = prediction").count() / scored.count())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A residual network on images of CIFAR's shape.")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--gpus", type=int, default=0, help="of each worker")
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--depth", type=int, default=20, help="6n + 2")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64, help="of each worker")
    parser.add_argument("--tiny", action="store_true", help="few images and layers: does it run here?")
    chosen = parser.parse_args()
    if chosen.tiny:
        chosen.rows, chosen.depth, chosen.epochs, chosen.batch_size = 600, 8, 2, 16

    from pyspark.sql import SparkSession

    session = SparkSession.builder.getOrCreate()
    print(f"test accuracy {main(session, chosen):.3f}")
