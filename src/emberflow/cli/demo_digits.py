"""The program that the demo trains: a small network that reads handwritten digits."""

import functools
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from emberflow.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from emberflow.ml import KerasModel

BATCH_ROWS = 32  # of all workers together, so that the result does not depend on their number
TEST_SHARE = 0.25  # of 1,797 digits: one wrong answer is 0.2 % of them
SEED = 7  # any number: the demo shows the same each time
PAGE_PACKAGES = ("starlette", "uvicorn")  # of the extra `page`: without them the demo trains without its page


@dataclass(frozen=True, kw_only=True)
class Digits:
    """Images of 8 x 8 grey values from 0 to 1, and their labels."""

    images: Any
    labels: Any
    test_images: Any
    test_labels: Any


def load_digits() -> Digits:
    """Read the 1,797 handwritten digits that come with scikit-learn; a quarter is held out for the test."""
    try:
        from sklearn.datasets import load_digits as load_from_sklearn
        from sklearn.model_selection import train_test_split
    except ImportError as error:
        raise ConfigError(
            f"The demo needs scikit-learn and matplotlib. Received: {error}.",
            fix="pip install 'emberflow[demo]'",
        ) from error
    data = load_from_sklearn()
    images = (data.images / 16.0).astype("float32")[..., None]
    labels = data.target.astype("int64")
    split = train_test_split(images, labels, test_size=TEST_SHARE, random_state=SEED, stratify=labels)
    return Digits(images=split[0], test_images=split[1], labels=split[2], test_labels=split[3])


def build_model(steps: int) -> Any:
    """Return the compiled network, whose learning rate decays over `steps`: three convolutions, two dense layers."""
    import keras

    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.Flatten(),
            layers.Dropout(0.4),
            layers.Dense(128, activation="relu"),
            layers.Dropout(0.4),
            layers.Dense(10, activation="softmax"),
        ]
    )
    rate = keras.optimizers.schedules.CosineDecay(2e-3, steps)
    model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def frame_of(spark: "SparkSession", digits: Digits) -> "DataFrame":
    """Return all digits as a DataFrame: id, image, label, and whether it belongs to the test."""
    import numpy as np

    images = np.concatenate([digits.images, digits.test_images]).reshape(-1, 64).tolist()
    labels = np.concatenate([digits.labels, digits.test_labels]).tolist()
    rows = [
        (number, image, label, number >= len(digits.labels))
        for number, (image, label) in enumerate(zip(images, labels, strict=True))
    ]
    return spark.createDataFrame(rows, "id long, image array<float>, label long, is_test boolean")


def train(rows: "DataFrame", *, workers: int, epochs: int, digits: int) -> "KerasModel":
    """Train on the `digits` training rows, on all workers together; validate on the test rows after each epoch."""
    import emberflow as ef

    estimator = ef.KerasEstimator(
        model=functools.partial(build_model, steps=epochs * (digits // BATCH_ROWS + 1)),
        featuresCol="image",
        labelCol="label",
        validationIndicatorCol="is_test",
        batchSize=max(1, BATCH_ROWS // workers),
        epochs=epochs,
        numWorkers=workers,
        seed=SEED,
        page=all(find_spec(package) for package in PAGE_PACKAGES),
    )
    return estimator.fit(rows)


def read_digits(model: "KerasModel", rows: "DataFrame") -> Any:
    """Return the network's ten probabilities for each test digit, in the order of the ids."""
    import numpy as np
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql import functions as F

    scored = model.transform(rows.filter("is_test")).select(
        "id", vector_to_array(F.col("probability")).alias("scores")
    )
    return np.array([row["scores"] for row in sorted(scored.collect())])
