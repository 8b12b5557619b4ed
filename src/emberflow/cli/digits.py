"""The demo's program: a small network that reads handwritten digits, trained on all workers together."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from emberflow._plan.steps import batch_rows, common_steps
from emberflow.errors import ConfigError

if TYPE_CHECKING:
    from emberflow._node.context import Context

BATCH_ROWS = 32  # of all workers together, so that more of them learn the same
TEST_SHARE = 0.25
SEED = 7


@dataclass(frozen=True, kw_only=True)
class Digits:
    """Images of 8 x 8 grey values from 0 to 1, and what they show."""

    images: Any
    labels: Any
    test_images: Any
    test_labels: Any


def load_digits() -> Digits:
    """Read the 1,797 handwritten digits that come with scikit-learn; a quarter is kept for the test."""
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


def build_model() -> Any:
    """Return the network: three convolutions and two dense layers, 160 thousand weights."""
    import keras

    keras.utils.set_random_seed(SEED)
    layers = keras.layers
    return keras.Sequential(
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
            layers.Dense(10),
        ]
    )


def train(ctx: "Context", digits: Digits, epochs: int) -> dict[str, Any]:
    """Train on this worker's share of the digits, in step with the others; runs on every node.

    Returns:
        What the network makes of each test digit, and how the test went after each epoch.
    """
    import numpy as np

    import tensorflow as tf

    shares = [np.arange(rank, len(digits.labels), ctx.workers) for rank in range(ctx.workers)]
    steps = common_steps([len(share) for share in shares], max(1, BATCH_ROWS // ctx.workers))
    strategy = ctx.strategy()
    with strategy.scope():
        model = build_model()
        step = make_step(strategy, model, steps * epochs)
    predict = tf.function(model)
    history = []
    for epoch in range(epochs):
        mine = np.random.default_rng([SEED, epoch, ctx.rank]).permutation(shares[ctx.rank])
        for number in range(steps):
            sizes = [len(batch_rows(len(share), steps, number)) for share in shares]
            rows = mine[list(batch_rows(len(mine), steps, number))]
            started = time.perf_counter()
            loss, right = step(digits.images[rows], digits.labels[rows], tf.constant(float(sum(sizes))))
            seconds = time.perf_counter() - started
            if ctx.is_chief:
                ctx.report(
                    step=epoch * steps + number + 1,
                    loss=float(loss),
                    accuracy=float(right) / sum(sizes),
                    rows_per_s=sum(sizes) / seconds,
                )
        scores = tf.nn.softmax(predict(digits.test_images, training=False)).numpy()
        history.append(float((scores.argmax(1) == digits.test_labels).mean()))
        if ctx.is_chief:
            print(f"epoch {epoch + 1} of {epochs}: {history[-1]:.1%} of the test digits right", flush=True)  # noqa: T201
    weights = float(sum(np.abs(variable.numpy()).sum() for variable in model.trainable_variables))
    return {"scores": scores, "history": history, "weights": weights, "steps": steps}


def make_step(strategy: Any, model: Any, steps: int) -> Any:
    """Return the function that takes one of `steps` steps, by the gradient of all workers' rows together."""
    import keras

    import tensorflow as tf

    optimizer = keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(2e-3, steps))
    optimizer.build(model.trainable_variables)

    def step_of_worker(images: Any, labels: Any, all_rows: Any) -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            scores = model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)
            loss = tf.reduce_sum(losses) / all_rows
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        right = tf.reduce_sum(tf.cast(tf.argmax(scores, 1) == labels, tf.float32))
        return loss, right

    @tf.function(  # type: ignore[untyped-decorator]
        input_signature=[
            tf.TensorSpec([None, 8, 8, 1], tf.float32),
            tf.TensorSpec([None], tf.int64),
            tf.TensorSpec([], tf.float32),
        ]
    )
    def step(images: Any, labels: Any, all_rows: Any) -> Any:
        sums = strategy.run(step_of_worker, args=(images, labels, all_rows))
        return [strategy.reduce(tf.distribute.ReduceOp.SUM, value, axis=None) for value in sums]

    return step
