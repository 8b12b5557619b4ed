"""Tiny models and rows for the estimator's tests."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 96


def flower_rows(spark: "SparkSession", rows: int = ROWS) -> "DataFrame":
    """Three kinds of flowers that two numbers tell apart, with a text label; the same in every run."""
    from pyspark.sql import functions as F

    kind = F.col("id") % 3
    noise = (F.col("id") * 37 % 101) / 200.0
    return spark.range(0, rows, 1, 3).select(
        "id",
        (kind + noise).cast("float").alias("length"),
        (kind * 2 - noise).cast("float").alias("width"),
        F.element_at(F.array(F.lit("iris"), F.lit("rose"), F.lit("tulip")), (kind + 1).cast("int")).alias(
            "kind"
        ),
        kind.alias("label"),
    )


def predictions(scored: "DataFrame") -> list[list[float]]:
    """Return id and prediction of all rows, in order."""
    return sorted([row["id"], row["prediction"]] for row in scored.select("id", "prediction").collect())


def flower_model(seed: int = 3) -> Any:
    """Build a classifier of two numbers into three kinds."""
    import keras

    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [
            keras.layers.Input((2,)),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.02), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def normalised_model() -> Any:
    """Build one with moving statistics, in which each rank goes its own way until an epoch is over."""
    import keras

    keras.utils.set_random_seed(3)
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((2,)),
            layers.Dense(8),
            layers.BatchNormalization(momentum=0.9),
            layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.02), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def measured_rows(spark: "SparkSession", rows: int = ROWS) -> "DataFrame":
    """Two features, one of them Spark's vector, two labels, a weight, and whether the row is held out."""
    from pyspark.ml.functions import array_to_vector
    from pyspark.sql import functions as F

    noise = (F.col("id") * 37 % 101) / 101.0
    return spark.range(0, rows, 1, 3).select(
        "id",
        F.array(noise, 1 - noise).cast("array<float>").alias("left"),
        array_to_vector(F.array(noise * 2, noise - 0.5)).alias("right"),
        (noise * 3).alias("value"),
        (noise > 0.5).cast("int").alias("sign"),
        F.when(F.col("id") % 2 == 0, 1.0).otherwise(0.0).alias("weight"),
        (F.col("id") % 4 == 0).alias("held_out"),
    )


def two_headed_model() -> Any:
    """Build a model with two inputs and two outputs, compiled in a way that the estimator's Params change."""
    import keras

    keras.utils.set_random_seed(4)
    left, right = keras.Input((2,), name="left"), keras.Input((2,), name="right")
    joined = keras.layers.Dense(8, "tanh")(keras.layers.Concatenate()([left, right]))
    value = keras.layers.Dense(1, name="value")(joined)
    sign = keras.layers.Dense(1, "sigmoid", name="sign")(joined)
    model = keras.Model({"left": left, "right": right}, {"value": value, "sign": sign})
    model.compile("sgd", {"value": "mae", "sign": "binary_crossentropy"})
    return model


class KillOnce:
    """Makes a callback that kills its own process, on one rank, after so many batches, in the first attempt only."""

    def __init__(self, marker: Path, rank: int, after: int) -> None:
        self.marker = str(marker)
        self.rank = rank
        self.after = after

    def __call__(self) -> Any:
        import os
        import signal

        import keras

        settings = self

        class Kill(keras.callbacks.Callback):  # type: ignore[misc]
            seen = 0

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                self.seen += 1
                import json

                task = json.loads(os.environ["TF_CONFIG"])["task"]
                rank = 0 if task["type"] == "chief" else task["index"] + 1
                if (
                    rank == settings.rank
                    and self.seen == settings.after
                    and not Path(settings.marker).exists()
                ):
                    Path(settings.marker).touch()
                    os.kill(os.getpid(), signal.SIGKILL)

        return Kill()


def token_rows(spark: "SparkSession") -> "DataFrame":
    """Sequences of one to five numbers, and their sum."""
    from pyspark.sql import functions as F

    tokens = F.sequence(F.lit(1), (F.col("id") % 5 + 1).cast("int"))
    total = F.aggregate(tokens, F.lit(0), lambda sum_, each: sum_ + each)
    return spark.range(0, 24, 1, 3).select("id", tokens.alias("tokens"), (total / 15.0).alias("label"))


def sequence_model() -> Any:
    """Build one that reads sequences of any length; padding is not masked, so that its length matters."""
    import keras

    keras.utils.set_random_seed(3)
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((None,), dtype="int32"), layers.Embedding(8, 4), layers.LSTM(4), layers.Dense(1)]
    )
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model
