"""Models and rows that are trained on many ranks and in one process, to be compared number by number.

`steps` says how many rows each rank has in each step; one process gets all ranks' rows of a step as one batch.
"""
# ruff: noqa: ARG005 - all cases are called alike

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np

import tensorflow as tf

Rows = dict[str, Any]
EVEN = ((8, 8), (8, 8), (8, 8), (8, 8))
UNEVEN = ((10, 9), (9, 10), (10, 9), (3, 1))
EMPTY = ((10, 9), (6, 0), (0, 7), (8, 8))
THREE = ((5, 4, 4), (4, 5, 0), (1, 6, 3), (5, 4, 4))

# Keras weighs the loss of a single output by batches, where ours weighs by rows: equal for equal batches only.
EVALUATED = {2: ((10, 9), (4, 15), (0, 19)), 3: ((5, 4, 4), (0, 6, 7))}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One comparison."""

    build: Callable[[], Any]
    rows: Callable[[int], Any]
    steps: tuple[tuple[int, ...], ...] = UNEVEN
    epochs: int = 2
    fit: Callable[[str, int], Rows] = field(default=lambda folder, rank: {})
    validation: tuple[tuple[int, ...], ...] = ()
    evaluated: tuple[tuple[int, ...], ...] | None = None  # as in EVALUATED; empty: not comparable


def random(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def batches_of(case: Case, steps: tuple[tuple[int, ...], ...], rank: int | None) -> list[Any]:
    """The batches of one rank, or of one process for rank None."""
    start, batches = 0, []
    for sizes in steps:
        spans = np.cumsum([start, *sizes])
        first, last = (spans[0], spans[-1]) if rank is None else (spans[rank], spans[rank + 1])
        batches.append(take(case.rows(2000), int(first), int(last)))
        start = int(spans[-1])
    return batches


def take(rows: Any, first: int, last: int) -> Any:
    return tf.nest.map_structure(lambda column: column[first:last], rows)


def dataset(batches: list[Any]) -> Any:
    """Whole batches of any size, as they come from a shard."""
    spec = tf.nest.map_structure(
        lambda column: tf.TensorSpec((None, *column.shape[1:]), tf.as_dtype(column.dtype)), batches[0]
    )
    rows = tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=spec)
    # Keras asks for one batch more where it does not know the number, and counts that as a step.
    return rows.apply(tf.data.experimental.assert_cardinality(len(batches)))


def features(count: int) -> Any:
    rng = random(3)
    x = rng.normal(size=(count, 6)).astype(np.float32)
    return x, (x[:, :1] - x[:, 1:2] ** 2 + 0.1 * rng.normal(size=(count, 1))).astype(np.float32)


def classes(count: int) -> Any:
    x, y = features(count)
    return x, (y[:, 0] > 0).astype(np.int64) + (y[:, 0] > 1)


def weighted(count: int) -> Any:
    return *features(count), random(4).uniform(0.1, 3.0, size=count).astype(np.float32)


def two_headed(count: int) -> Any:
    x, y = features(count)
    inputs = {"left": x[:, :2], "right": x[:, 2:]}
    return inputs, {"value": y, "sign": (y > 0).astype(np.float32)}


def nested(count: int) -> Any:
    x, y = features(count)
    return {"first": x[:, :2], "others": (x[:, 2:3], x[:, 3:])}, y


def words(count: int) -> Any:
    return random(5).integers(0, 50, size=(count, 4)), features(count)[1]


def dense(optimizer: Any, loss: Any = "mse", metrics: Any = ("mae",), **compiled: Any) -> Any:
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    model.compile(optimizer, loss, metrics=list(metrics), **compiled)
    return model


def classifier(**compiled: Any) -> Any:
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, metrics=["accuracy"], **compiled)
    return model


def headed() -> Any:
    left, right = keras.Input((2,), name="left"), keras.Input((4,), name="right")
    joined = keras.layers.Dense(6, "tanh")(keras.layers.Concatenate()([left, right]))
    value = keras.layers.Dense(1, name="value")(joined)
    sign = keras.layers.Dense(1, "sigmoid", name="sign")(joined)
    model = keras.Model({"left": left, "right": right}, {"value": value, "sign": sign})
    model.compile(
        "adam",
        {"value": "mse", "sign": "binary_crossentropy"},
        loss_weights={"value": 1.0, "sign": 0.3},
        metrics={"value": ["mae"], "sign": [keras.metrics.AUC(num_thresholds=20)]},
    )
    return model


def nest() -> Any:
    inputs = {"first": keras.Input((2,), name="first"), "others": (keras.Input((1,)), keras.Input((3,)))}
    joined = keras.layers.Concatenate()([inputs["first"], *inputs["others"]])
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dense(6, "tanh")(joined)))
    model.compile("adam", "mse", metrics=["mae"])
    return model


def embedded(optimizer: Any) -> Any:
    model = keras.Sequential(
        [
            keras.Input((4,), dtype="int64"),
            keras.layers.Embedding(50, 5),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
    )
    model.compile(optimizer, "mse")
    return model


def regularized() -> Any:
    model = keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(8, "tanh", kernel_regularizer="l2", activity_regularizer="l2"),
            keras.layers.Dense(1),
        ]
    )
    model.compile("sgd", "mse")
    return model


def normalized(**options: Any) -> Any:
    model = keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(8),
            keras.layers.BatchNormalization(**options),
            keras.layers.Dense(1),
        ]
    )
    model.compile("adam", "mse")
    return model


def shared(policy: str = "float32", **compiled: Any) -> Any:
    """Statistics over all ranks: of the rows as they come, and of values that have a gradient."""
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((6,)),
            layers.BatchNormalization(synchronized=True),
            layers.Dense(8, "tanh", dtype=policy),
            layers.Reshape((2, 4)),
            layers.BatchNormalization(axis=1, momentum=0.7, synchronized=True, dtype=policy),
            layers.Flatten(),
            layers.Dense(1, dtype="float32"),
        ]
    )
    optimizer = adam(clipnorm=0.5)
    if policy == "mixed_float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=256.0)
    model.compile(optimizer, "mse", metrics=["mae"], **compiled)
    return model


def shared_masked() -> Any:
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((4,), dtype="int64"),
            layers.Embedding(50, 5, mask_zero=True),
            layers.BatchNormalization(synchronized=True),
            layers.GlobalAveragePooling1D(),
            layers.Dense(1),
        ]
    )
    model.compile(sgd(), "mse")
    return model


def padded(count: int) -> Any:
    """One to four words in a row."""
    numbers, y = words(count)
    return np.maximum(numbers, 1) * (np.arange(4) < random(6).integers(1, 5, size=(count, 1))), y


def dropping() -> Any:
    model = keras.Sequential(
        [keras.Input((6,)), keras.layers.Dense(64), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
    )
    model.compile("sgd", "mse")
    return model


def unbuilt() -> Any:
    model = keras.Sequential([keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def mixed(policy: str) -> Any:
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((6,)), layers.Dense(8, "tanh", dtype=policy), layers.Dense(1, dtype="float32")]
    )
    optimizer = keras.optimizers.SGD(0.05)
    if policy == "mixed_float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=256.0)
    model.compile(optimizer, "mse")
    return model


@keras.saving.register_keras_serializable("cases")
class OwnStep(keras.Model):  # type: ignore[misc]
    """A custom step with a tracker that counts batches."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.out = keras.layers.Dense(1)
        self.tracker = keras.metrics.Mean(name="squared")

    def call(self, x: Any) -> Any:
        return self.out(x)

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.tracker.update_state(loss)
        return {"squared": self.tracker.result()}

    @property
    def metrics(self) -> list[Any]:
        return [self.tracker]


class BareNumbers(OwnStep):
    """A custom step that returns the loss of its batch, not a metric."""

    def train_step(self, data: Any) -> Any:
        return {"last": super().train_step(data)["squared"] * 0 + tf.reduce_mean(data[1])}


class TwoOptimizers(OwnStep):
    """A custom step that trains two parts by two optimizers, as adversarial models do."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")
        self.scale_optimizer = keras.optimizers.SGD(0.02)

    def call(self, x: Any) -> Any:
        return self.out(x) * self.scale

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
        rest = list(self.out.trainable_variables)
        self.optimizer.apply(tape.gradient(loss, rest), rest)
        self.scale_optimizer.apply(tape.gradient(loss, [self.scale.value]), [self.scale])
        self.tracker.update_state(loss)
        return {"squared": self.tracker.result()}


def own(kind: type[OwnStep]) -> Any:
    model = kind()
    model(np.zeros((1, 6), np.float32))
    model.compile(keras.optimizers.Adam(0.01))
    return model


def validated(folder: str, rank: int) -> Rows:
    best = f"{folder}/best-{rank}.keras"  # a path of its own for each rank: only the chief's may exist
    return {
        "callbacks": [
            keras.callbacks.EarlyStopping(patience=1, restore_best_weights=True),
            keras.callbacks.ModelCheckpoint(best, save_best_only=True),
            keras.callbacks.ReduceLROnPlateau(patience=1, factor=0.3, min_delta=10),
        ]
    }


def sgd(rate: float = 0.05, **options: Any) -> Any:
    return keras.optimizers.SGD(rate, **options)


def adam(**options: Any) -> Any:
    return keras.optimizers.Adam(0.01, **options)


def scheduled() -> Any:
    schedule = keras.optimizers.schedules.ExponentialDecay(0.05, 2, 0.7)
    return keras.optimizers.Adam(schedule, clipnorm=0.05)


CASES: dict[str, Case] = {
    "sgd": Case(build=lambda: dense(sgd(momentum=0.9)), rows=features),
    "classes": Case(build=classifier, rows=classes),
    "even": Case(build=lambda: dense(adam()), rows=features, steps=EVEN),
    "heads": Case(build=headed, rows=two_headed, validation=((6, 5), (5, 6))),
    "heads_empty": Case(build=headed, rows=two_headed, steps=EMPTY),
    "nested": Case(build=nest, rows=nested),
    "clipnorm_schedule": Case(build=lambda: dense(scheduled()), rows=features),
    "global_clipnorm": Case(build=lambda: dense(adam(global_clipnorm=0.05)), rows=features),
    "ema": Case(
        build=lambda: dense(adam(use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=3)), rows=features
    ),
    "accumulate": Case(build=lambda: dense(adam(gradient_accumulation_steps=2, clipnorm=0.1)), rows=features),
    "decay": Case(build=lambda: dense(keras.optimizers.AdamW(0.01, weight_decay=0.1)), rows=features),
    "sample_weight": Case(build=lambda: dense(sgd(), weighted_metrics=["mae"]), rows=weighted),
    "class_weight": Case(
        build=classifier, rows=classes, fit=lambda folder, rank: {"class_weight": {0: 0.2, 1: 2.0, 2: 5.0}}
    ),
    "validation": Case(
        build=lambda: dense(sgd(0.3, momentum=0.9)),
        rows=features,
        epochs=6,
        fit=validated,
        validation=((7, 3), (5, 6)),
    ),
    "own_step": Case(build=lambda: own(OwnStep), rows=features),
    "bare_numbers": Case(build=lambda: own(BareNumbers), rows=features),
    "two_optimizers": Case(build=lambda: own(TwoOptimizers), rows=features),
    "embedding_sgd": Case(build=lambda: embedded(sgd()), rows=words),
    "embedding_adam": Case(build=lambda: embedded(adam()), rows=words, steps=EMPTY),
    "embedding_clip": Case(build=lambda: embedded(adam(clipnorm=0.05)), rows=words),
    "several_steps": Case(build=lambda: dense(adam(), steps_per_execution=4), rows=features),
    "half": Case(build=lambda: mixed("mixed_float16"), rows=features),
    "brain": Case(build=lambda: mixed("mixed_bfloat16"), rows=features),
    "eager": Case(build=lambda: dense(sgd(), run_eagerly=True), rows=features, steps=EMPTY, epochs=1),
    "empty": Case(build=lambda: dense(adam(clipnorm=0.1)), rows=features, steps=EMPTY),
    # Older versions of Keras sum activity regularizers over rows: equal evaluations for equal batches only.
    "regularized": Case(build=regularized, rows=features, evaluated=((8, 8), (8, 8))),
    "unbuilt": Case(build=unbuilt, rows=features),
    "jit": Case(build=lambda: dense(sgd(), jit_compile=True), rows=features),
    "batchnorm": Case(build=normalized, rows=features),
    "batchnorm_empty": Case(build=normalized, rows=features, steps=EMPTY),
    "shared": Case(build=shared, rows=features, validation=((7, 3), (5, 6))),
    "shared_empty": Case(build=shared, rows=features, steps=EMPTY),
    "shared_masked": Case(build=shared_masked, rows=padded, steps=EMPTY),
    "shared_half": Case(build=lambda: shared("mixed_float16"), rows=features),
    "shared_eager": Case(build=lambda: shared(run_eagerly=True), rows=features, steps=EMPTY, epochs=1),
    "shared_several_steps": Case(build=lambda: shared(steps_per_execution=4), rows=features),
    "three_shared": Case(build=shared, rows=features, steps=THREE),
    "dropout": Case(build=dropping, rows=features),
    "three": Case(build=lambda: dense(adam(clipnorm=0.05)), rows=features, steps=THREE),
    "three_heads": Case(build=headed, rows=two_headed, steps=THREE, validation=((2, 3, 1),)),
    "three_embedding": Case(build=lambda: embedded(adam()), rows=words, steps=THREE),
    "three_batchnorm": Case(build=normalized, rows=features, steps=THREE),
}
