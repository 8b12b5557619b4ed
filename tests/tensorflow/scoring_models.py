"""Small models of every kind that scoring must know, with the rows they take."""

from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import pyarrow as pa

import tensorflow as tf

ROWS = 23
WORDS = ("ember", "flow", "spark", "glüht", "")


@keras.saving.register_keras_serializable("scoring_models")
class Mean(keras.layers.Layer):
    """The mean over a ragged dimension."""

    def call(self, inputs: Any) -> Any:
        return tf.reduce_mean(inputs, axis=1)

    def compute_output_shape(self, shape: Any) -> Any:
        return (shape[0], shape[-1])


class Case(NamedTuple):
    """A model, the table to score, which column each input gets, and the same rows as Keras takes them."""

    model: Any
    table: Any
    inputs: Any
    rows: Any


def floats(*shape: int) -> Any:
    return np.random.default_rng(5).random((ROWS, *shape), dtype=np.float32)


def lists(array: Any) -> Any:
    return pa.array(array.tolist(), pa.list_(pa.float32()) if array.ndim == 2 else None)


def mlp() -> Case:
    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(3, "softmax")]
    )
    rows = floats(8)
    return Case(model, {"x": lists(rows)}, "x", rows)


def cnn() -> Case:
    layers = [keras.layers.Conv2D(4, 3), keras.layers.GlobalMaxPooling2D(), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input((6, 6, 1)), *layers])
    rows = np.random.default_rng(6).integers(0, 256, (ROWS, 36), np.uint8)
    table = {"image": pa.array([row.tobytes() for row in rows], pa.binary())}
    return Case(model, table, "image", rows.reshape(ROWS, 6, 6, 1).astype(np.float32))


def multi_input() -> Case:
    left, right = keras.Input((2,), name="left"), keras.Input((), name="right", dtype="int32")
    number = keras.layers.Rescaling(0.5)(keras.layers.Reshape((1,))(right))
    out = keras.layers.Dense(2)(keras.layers.Concatenate()([left, number]))
    rows = {"left": floats(2), "right": np.arange(ROWS, dtype=np.int32)}
    model = keras.Model({"left": left, "right": right}, out)
    table = {"l": lists(rows["left"]), "r": pa.array(np.arange(ROWS))}
    return Case(model, table, {"left": "l", "right": "r"}, rows)


def multi_output() -> Case:
    x = keras.Input((4,), name="x")
    hidden = keras.layers.Dense(5, "tanh")(x)
    square = keras.layers.Reshape((2, 2), name="square")(keras.layers.Dense(4)(hidden))
    model = keras.Model(x, [keras.layers.Dense(1, name="score")(hidden), square])
    rows = floats(4)
    return Case(model, {"x": lists(rows)}, None, rows)


def string_input() -> Case:
    texts = [f"{WORDS[at % 5]} {WORDS[at % 3]}" for at in range(ROWS)]
    vectorize = keras.layers.TextVectorization(output_sequence_length=3)
    vectorize.adapt(texts)
    text = keras.Input((), dtype="string", name="text")
    embedded = keras.layers.Embedding(20, 3)(vectorize(text))
    model = keras.Model(text, keras.layers.Dense(2)(keras.layers.Flatten()(embedded)))
    return Case(model, {"text": pa.array(texts)}, "text", tf.constant(texts))


def ragged_text() -> Case:
    tokens = [[(at * 7 + word) % 9 for word in range(at % 4 + 1)] for at in range(ROWS)]
    token = keras.Input((None,), dtype="int32", ragged=True, name="tokens")
    model = keras.Model(token, keras.layers.Dense(2)(Mean()(keras.layers.Embedding(9, 4)(token))))
    table = {"tokens": pa.array(tokens, pa.list_(pa.int64()))}
    return Case(model, table, "tokens", tf.ragged.constant(tokens, dtype=tf.int32))


CASES = {one.__name__: one for one in (mlp, cnn, multi_input, multi_output, string_input, ragged_text)}


def plain_tensorflow(folder: Path) -> str:
    """Write a SavedModel with two signatures: no Keras anywhere."""

    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float64), tf.TensorSpec([None], tf.string)])
        def serve(self, x: Any, name: Any) -> dict[str, Any]:
            return {"twice": x * 2, "hello": tf.strings.join(["hello ", name])}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
        def half(self, n: Any) -> dict[str, Any]:
            return {"half": tf.cast(n, tf.float32) / 2, "is_even": n % 2 == 0}

    module = Module()
    signatures = {"serving_default": module.serve, "half": module.half}
    tf.saved_model.save(module, str(folder / "plain"), signatures=signatures)
    return str(folder / "plain")


def tf_keras_model(folder: Path) -> str:
    """Write a SavedModel by the older Keras."""
    import tf_keras

    layers = [tf_keras.layers.Input((3,), name="q"), tf_keras.layers.Dense(2, kernel_initializer="ones")]
    tf_keras.Sequential(layers).save(str(folder / "old"), save_format="tf")
    return str(folder / "old")


def tensorflow_one(folder: Path) -> str:
    """Write a SavedModel in the way of TensorFlow 1: a session's graph, a fixed number of rows, other tags."""
    v1 = tf.compat.v1
    path = str(folder / "one")
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [4, 3], name="x")
        total = tf.reduce_sum(x, axis=1)
        builder = v1.saved_model.Builder(path)
        info = v1.saved_model.utils.build_tensor_info
        signature = v1.saved_model.build_signature_def({"x": info(x)}, {"total": info(total)}, "predict")
        builder.add_meta_graph_and_variables(session, ["serve", "cpu"], {"sum": signature})
        builder.save()
    return path
