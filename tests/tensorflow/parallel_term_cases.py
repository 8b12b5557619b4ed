"""More comparisons with one process: losses and metrics that are sums, means, masked, or none of these."""

from typing import Any

import keras
import numpy as np

import tensorflow as tf
from tests.tensorflow.parallel_cases import (
    CASES,
    EMPTY,
    Case,
    adam,
    dense,
    embedded,
    features,
    random,
    sgd,
    two_headed,
)
from tests.tensorflow.parallel_cases import words as word_rows

SINGLE = ((1, 2), (3, 1), (1, 1), (2, 5))  # a rank with exactly one row


@keras.saving.register_keras_serializable("cases")
class AddLoss(keras.layers.Layer):  # type: ignore[misc]
    """Adds a loss over the rows that pass through."""

    def __init__(self, reduce: str = "mean", **options: Any) -> None:
        super().__init__(**options)
        self.reduce = reduce

    def call(self, x: Any) -> Any:
        squares = tf.square(x)
        if self.reduce == "sum":
            self.add_loss(0.01 * tf.reduce_sum(squares))
        elif self.reduce == "mean":
            self.add_loss(0.1 * tf.reduce_mean(squares))
        else:
            self.add_loss(tf.math.reduce_variance(squares))
        return x


class AddInTraining(keras.layers.Layer):  # type: ignore[misc]
    """Adds a loss in training only."""

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.add_loss(tf.reduce_mean(tf.square(x)))
        return x


class Largest(keras.metrics.Metric):  # type: ignore[misc]
    """A metric whose state is no sum: it cannot be added over ranks."""

    def __init__(self) -> None:
        super().__init__(name="largest")
        self.value = self.add_weight(initializer="zeros", name="value")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.value.assign(tf.maximum(self.value, tf.reduce_max(tf.abs(y_pred))))

    def result(self) -> Any:
        return self.value


class Spread(keras.metrics.Metric):  # type: ignore[misc]
    """A metric of the user's own whose state is three sums."""

    def __init__(self) -> None:
        super().__init__(name="spread")
        self.sums = self.add_weight(shape=(2,), initializer="zeros", name="sums")
        self.rows = self.add_weight(initializer="zeros", name="rows", dtype="int32")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        error = tf.cast(y_true, tf.float32) - y_pred
        self.sums.assign_add(tf.stack([tf.reduce_sum(error), tf.reduce_sum(tf.square(error))]))
        self.rows.assign_add(tf.shape(error)[0])

    def result(self) -> Any:
        mean, square = tf.unstack(self.sums / tf.cast(self.rows, tf.float32))
        return square - tf.square(mean)


class NoteRows(keras.layers.Layer):  # type: ignore[misc]
    """A layer with a `Mean` that is fed once per row."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.mean = keras.metrics.Mean(name="size")

    def call(self, x: Any) -> Any:
        self.mean.update_state(tf.reduce_sum(tf.abs(x), axis=-1))
        return x


@keras.saving.register_keras_serializable("cases")
class OwnLoss(keras.Model):  # type: ignore[misc]
    """A model that computes its loss by itself, as a sum."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.out = keras.layers.Dense(1)

    def call(self, x: Any) -> Any:
        return self.out(x)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        return 0.1 * tf.reduce_sum(tf.square(y - y_pred))


def summed_error(y_true: Any, y_pred: Any) -> Any:
    """One number for the batch: a sum."""
    return 0.1 * tf.reduce_sum(tf.square(tf.cast(y_true, y_pred.dtype) - y_pred))


def mean_error(y_true: Any, y_pred: Any) -> Any:
    """One number for the batch: a mean."""
    return tf.reduce_mean(tf.abs(tf.cast(y_true, y_pred.dtype) - y_pred))


def through(layer: Any, **compiled: Any) -> Any:
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "tanh"), layer, keras.layers.Dense(1)])
    model.compile(adam(), "mse", metrics=["mae"], **compiled)
    return model


def unlike_heads() -> Any:
    """One output with a sum, one with a mean, a regularizer, and an added sum."""
    left, right = keras.Input((2,), name="left"), keras.Input((4,), name="right")
    joined = keras.layers.Dense(6, "tanh", kernel_regularizer="l2")(keras.layers.Concatenate()([left, right]))
    value = keras.layers.Dense(1, name="value")(AddLoss("sum")(joined))
    sign = keras.layers.Dense(1, "sigmoid", name="sign")(joined)
    model = keras.Model({"left": left, "right": right}, {"value": value, "sign": sign})
    summed = keras.losses.MeanSquaredError(reduction="sum")
    model.compile(
        sgd(0.01), {"value": summed, "sign": "binary_crossentropy"}, loss_weights={"value": 0.1, "sign": 1.0}
    )
    return model


def weighted_heads(count: int) -> Any:
    weights = random(6).uniform(0.1, 2.0, size=count).astype(np.float32)
    return *two_headed(count), {"value": weights, "sign": weights[::-1]}


def frozen() -> Any:
    layers = keras.layers
    model = keras.Sequential([keras.Input((6,)), layers.Dense(8, "tanh"), layers.Dense(4), layers.Dense(1)])
    model.layers[0].trainable = False
    model.compile(adam(), "mse")
    return model


def lora() -> Any:
    layers = keras.layers
    model = keras.Sequential([keras.Input((6,)), layers.Dense(8, "tanh"), layers.Dense(1)])
    model.layers[0].enable_lora(2)
    model.compile(adam(), "mse")
    return model


def overflowing(count: int) -> Any:
    """One row in the second step of rank 1 whose gradient is too large for half floats."""
    x, y = features(count)
    x[30] = 3e4
    return x, y


def scaled_half() -> Any:
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((6,)), layers.Dense(8, "relu", dtype="mixed_float16"), layers.Dense(1, dtype="float32")]
    )
    optimizer = keras.optimizers.LossScaleOptimizer(sgd(0.001), initial_scale=2.0**8, dynamic_growth_steps=3)
    model.compile(optimizer, "mse")
    return model


def judged() -> Any:
    """Confusion matrices and others."""
    model = keras.Sequential(
        [keras.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1, "sigmoid")]
    )
    metrics = keras.metrics
    model.compile(
        adam(),
        "binary_crossentropy",
        metrics=[
            metrics.AUC(num_thresholds=20), metrics.Precision(), metrics.F1Score("macro", threshold=0.5),
            metrics.BinaryIoU(), metrics.R2Score(), Spread(), mean_error,
        ],
    )  # fmt: skip
    return model


def signs(count: int) -> Any:
    x, y = features(count)
    return x, (y > 0).astype(np.float32)


def sentences(count: int) -> Any:
    """Sequences of words, padded by 0; labels for each word."""
    rng = random(7)
    words = rng.integers(1, 20, size=(count, 5))
    words[np.arange(5) >= rng.integers(1, 6, size=(count, 1))] = 0
    return words, (words % 3).astype(np.int64)


def tagged() -> Any:
    model = keras.Sequential(
        [
            keras.Input((5,), dtype="int64"),
            keras.layers.Embedding(20, 4, mask_zero=True),
            keras.layers.SimpleRNN(5, return_sequences=True),
            keras.layers.Dense(3),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(sgd(0.2), loss, metrics=["accuracy"])
    return model


def two_texts(count: int) -> Any:
    words, tags = sentences(count)
    return {"first": words, "second": words[::-1].copy()}, {
        "first_tags": tags,
        "second_tags": tags[::-1].copy(),
    }


def tagged_twice() -> Any:
    """Two outputs with masks of their own."""
    inputs = {name: keras.Input((5,), dtype="int64", name=name) for name in ("first", "second")}
    outputs = {
        f"{name}_tags": keras.layers.Dense(3, name=f"{name}_tags")(
            keras.layers.Embedding(20, 4, mask_zero=True)(each)
        )
        for name, each in inputs.items()
    }
    model = keras.Model(inputs, outputs)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(sgd(0.2), dict.fromkeys(outputs, loss))
    return model


def ignoring() -> Any:
    """Labels of one class do not count."""
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
    model.compile(sgd(0.1), loss)
    return model


def partly_labelled(count: int) -> Any:
    x, y = features(count)
    return x, (y[:, 0] > -0.5).astype(np.int64) + (y[:, 0] > 0.5)


def spied() -> Any:
    model = keras.Sequential([keras.Input((6,)), NoteRows(), keras.layers.Dense(1)])
    model.compile(sgd(), "mse")
    return model


def stateful() -> Any:
    model = keras.Sequential(
        [keras.Input((3, 2), batch_size=4), keras.layers.SimpleRNN(4, stateful=True), keras.layers.Dense(1)]
    )
    model.compile("sgd", "mse")
    return model


def own_loss() -> Any:
    model = OwnLoss()
    model(np.zeros((1, 6), np.float32))
    model.compile(sgd(0.02))
    return model


# A sum over the rows of a batch depends on how many these are: equal where the workers' batches are.
EQUAL = ((8, 8), (8, 8))
FIRST_EMPTY = ((0, 5), (3, 0), (4, 9))

TERM_CASES: dict[str, Case] = {
    "add_mean": Case(build=lambda: through(AddLoss("mean")), rows=features),
    "add_sum": Case(build=lambda: through(AddLoss("sum")), rows=features, evaluated=EQUAL),
    "sum": Case(
        build=lambda: dense(sgd(0.005), keras.losses.MeanSquaredError(reduction="sum")),
        rows=features,
        evaluated=EQUAL,
    ),
    "scalar_sum": Case(
        build=lambda: dense(adam(), summed_error), rows=features, steps=EMPTY, evaluated=EQUAL
    ),
    "scalar_mean": Case(build=lambda: dense(adam(), mean_error, metrics=[mean_error]), rows=features),
    "unlike_heads": Case(build=unlike_heads, rows=two_headed, steps=FIRST_EMPTY, evaluated=EQUAL),
    "unlike_weighted": Case(build=unlike_heads, rows=weighted_heads, evaluated=EQUAL),
    "own_loss": Case(build=own_loss, rows=features, evaluated=EQUAL),
    "frozen": Case(build=frozen, rows=features),
    "lora": Case(build=lora, rows=features),
    "overflow": Case(build=scaled_half, rows=overflowing),
    "metrics": Case(build=judged, rows=signs, epochs=1),
    "embedding_accumulate": Case(build=lambda: embedded(adam(gradient_accumulation_steps=2)), rows=word_rows),
    # Means over unmasked steps depend on the batch in which these are.
    "masked": Case(build=tagged, rows=sentences, evaluated=()),
    "masked_twice": Case(build=tagged_twice, rows=two_texts, evaluated=()),
    "ignored_class": Case(build=ignoring, rows=partly_labelled, evaluated=()),
    "one_row": Case(build=spied, rows=features, steps=SINGLE),
}
ALL_CASES = CASES | TERM_CASES
