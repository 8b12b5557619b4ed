"""What the nodes of the feed benchmark do with their rows."""

import time
from typing import Any

from benchmarks._feed_rows import KINDS

EPOCHS = 3  # timed ones, after one that warms up


def count(ctx: Any) -> int:
    """Take all rows as they came, and do nothing with them: the sink."""
    return sum(batch.num_rows for batch in ctx.arrow())


def fit(ctx: Any, kind: str) -> int:
    """Train a linear model on all rows, once."""
    import keras

    spec = KINDS[kind]
    model = ctx.distribute(_linear(keras, kind))
    names = spec.features[0] if len(spec.features) == 1 else spec.features
    dataset = ctx.dataset(features=names, label="label", batch_size=spec.batch_size, dtypes=spec.decode)
    model.fit(dataset, epochs=1, verbose=0)
    return int(ctx.rows())


def _linear(keras: Any, kind: str) -> Any:
    layers = keras.layers
    if kind == "c":
        names = KINDS[kind].features
        inputs = {name: keras.Input((1,), name=name) for name in names}
        x = layers.Concatenate()(list(inputs.values()))
        model = keras.Model(inputs, layers.Dense(1)(x))
    else:
        width = KINDS[kind].row_bytes if kind != "a" else KINDS[kind].row_bytes // 4
        one = keras.Input((width,), dtype="float32" if kind == "a" else "uint8")
        x = one if kind == "a" else layers.Rescaling(1 / 255)(one)
        model = keras.Model(one, layers.Dense(1)(x))
    model.compile(optimizer=keras.optimizers.SGD(1e-6), loss="mse")
    return model


def epochs(ctx: Any, kind: str, epochs: int = EPOCHS) -> dict[str, Any]:
    """Time epochs from the spool, and the same rows as numpy arrays through tf.data, in turn.

    Returns:
        Rows of this node, and side to its epochs: time and CPU time of this process at the beginning, after the
        first batch, and at the end; and the rows of the first batch.
    """
    import tensorflow as tf

    sides = _spool_sides(ctx, kind) | _numpy_sides(ctx, kind, tf)
    steps = -(-ctx.rows() // KINDS[kind].batch_size)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}

    @tf.function
    def drain(batches: Any, steps: Any) -> Any:
        rows = tf.constant(0)
        for _ in tf.range(steps):
            rows += tf.shape(next(batches)[1])[0]
        return rows

    for turn in range(epochs + 1):
        for name, dataset in sides.items():
            moments = [_now()]
            iterator = iter(dataset)
            first = int(drain(iterator, tf.constant(1)))
            moments.append(_now())
            rest = int(drain(iterator, tf.constant(steps - 1)))
            moments.append(_now())
            assert first + rest == ctx.rows(), (name, first, rest, ctx.rows())
            if turn:
                found[name].append({"moments": moments, "first_rows": first})
            del iterator
    return {"rows": ctx.rows(), "epochs": found}


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _spool_sides(ctx: Any, kind: str) -> dict[str, Any]:
    spec = KINDS[kind]
    names = spec.features[0] if len(spec.features) == 1 else spec.features

    def dataset(shuffle: bool) -> Any:
        return ctx.dataset(
            features=names, label="label", batch_size=spec.batch_size, dtypes=spec.decode, shuffle=shuffle
        )

    return {"spool_shuffled": dataset(True), "spool_in_order": dataset(False)}


def _numpy_sides(ctx: Any, kind: str, tf: Any) -> dict[str, Any]:
    """All rows of this node in memory, as one would feed them to tf.data without Spark."""
    rows, size = ctx.rows(), KINDS[kind].batch_size
    arrays = _arrays(ctx, kind)

    def gathered() -> Any:
        # What Keras does with arrays that are passed to fit: shuffled row numbers, and a gather a batch.
        numbers = tf.data.Dataset.range(1).flat_map(
            lambda _: tf.data.Dataset.from_tensor_slices(tf.random.shuffle(tf.range(rows))).batch(size)
        )
        held = tf.nest.map_structure(tf.constant, arrays)
        return numbers.map(lambda at: tf.nest.map_structure(lambda x: tf.gather(x, at), held)).prefetch(4)

    slices = tf.data.Dataset.from_tensor_slices(arrays)
    return {
        "numpy_shuffled": slices.shuffle(rows).batch(size).prefetch(4),
        "numpy_gathered": gathered(),
        "numpy_in_order": slices.batch(size).prefetch(4),
    }


def _arrays(ctx: Any, kind: str) -> tuple[Any, Any]:
    import numpy as np
    import pyarrow as pa

    table = pa.Table.from_batches(ctx.arrow())
    label = table["label"].to_numpy()
    if kind == "c":
        return {name: table[name].to_numpy() for name in KINDS[kind].features}, label
    width = KINDS[kind].row_bytes
    parts = []
    for chunk in table["x"].chunks:
        if kind == "a":
            parts.append(np.asarray(chunk.flatten()).reshape(-1, width // 4))
        else:
            values = np.frombuffer(chunk.buffers()[2], np.uint8)
            parts.append(values[: len(chunk) * width].reshape(-1, width))
    return np.concatenate(parts), label
