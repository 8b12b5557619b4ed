"""Handwritten digits as rows, a small model for them, and notes of which rows a worker was given."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def digits() -> tuple[Any, Any, Any, Any]:
    """Return images and labels to train on, then those to test on."""
    from emberflow.cli.demo_digits import load_digits

    data = load_digits()
    flat = [images.reshape(len(images), 64) for images in (data.images, data.test_images)]
    return flat[0], data.labels, flat[1], data.test_labels


def digit_rows(spark: "SparkSession") -> "DataFrame":
    images, labels, _, _ = digits()
    rows = [
        (number, image.tolist(), int(label))
        for number, (image, label) in enumerate(zip(images, labels, strict=True))
    ]
    return spark.createDataFrame(rows, "id long, image array<float>, label long").repartition(3)


def digit_model() -> Any:
    import keras

    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.layers.Input((64,)),
            keras.layers.Reshape((8, 8, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.1),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    rate = keras.optimizers.schedules.ExponentialDecay(0.004, decay_steps=200, decay_rate=0.6)  # it settles
    model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def accuracy_of(weights: list[Any]) -> float:
    """Return the share of test images that a model with these weights reads right."""
    _, _, images, labels = digits()
    model = digit_model()
    model.set_weights(weights)
    return float((model.predict(images, verbose=0).argmax(1) == labels).mean())


def noted(ctx: Any, file: Path, **options: Any) -> Any:
    """Return this worker's dataset of images and labels; the file gets the id of every row that it gives."""
    import numpy as np

    import tensorflow as tf

    def note(ids: Any) -> Any:
        with file.open("a") as notes:
            notes.writelines(f"{number}\n" for number in ids.tolist())
        return np.int64(0)

    def arrange(batch: dict[str, Any]) -> Any:
        zero = tf.numpy_function(note, [batch["id"]], tf.int64)
        with tf.control_dependencies([zero]):
            return tf.ensure_shape(tf.identity(batch["image"]), [None, 64]), batch["label"]

    shapes = {"image": (64,)}
    return ctx.dataset("train", columns=["id", "image", "label"], shapes=shapes, **options).map(arrange)


def times_seen(files: Iterable[Path]) -> Counter[int]:
    """Return how often each id was given."""
    return Counter(int(line) for file in files for line in file.read_text().split())
