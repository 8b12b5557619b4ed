"""What the pages take for granted: rows, models and files, all tiny, by page."""

import gzip
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.tensorflow.digits_rows import digit_model, digit_rows

import emberflow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Names = dict[str, Any]
ROWS = 60


def prepare(page: str, spark: "SparkSession", folder: Path) -> Names:
    """Return the names that the blocks of a page may use; files go into the folder."""
    names: Names = {"__name__": "__main__", "ef": emberflow, "spark": spark}
    if page in PREAMBLES:
        names |= PREAMBLES[page](spark, folder)
    return names


def records(spark: "SparkSession", folder: Path) -> Names:
    """Images and labels."""
    return {"df": pictures(spark).select("image", "label")}


def features_and_label(spark: "SparkSession", folder: Path) -> Names:
    """Four numbers and one of three classes."""
    from pyspark.sql import functions as F

    numbers = [(F.rand(seed) + F.col("id") % 3).cast("float") for seed in range(4)]
    (folder / "keras-docs").mkdir()
    return {
        "df": spark.range(ROWS).select(F.array(*numbers).alias("features"), (F.col("id") % 3).alias("label"))
    }


def clicks(spark: "SparkSession", folder: Path) -> Names:
    """The rows of `features_and_label`, also as the files of a stream."""
    names = features_and_label(spark, folder)
    names["df"].coalesce(1).write.json(str(folder / "clicks"))
    return names


def pictures(spark: "SparkSession", numbers: int = 784) -> "DataFrame":
    """Images as arrays of numbers, with labels and the columns of a form."""
    return spark.range(ROWS).selectExpr(
        "id",
        f"transform(sequence(1, {numbers}), i -> cast((i + id) % 7 / 7 as float)) as image",
        "id % 10 as label",
        "cast(id % 3 as float) as x",
        "cast(id % 3 * 2 as float) as y",
        "cast(id % 2 as string) as day",
    )


def small_images(spark: "SparkSession", folder: Path) -> Names:
    """Images of eight by eight, and what builds a model for them."""
    return {"df": pictures(spark, 64), "build_model": build_model}


def digits(spark: "SparkSession", folder: Path) -> Names:
    """Handwritten digits, a network that learns to read them, and a graph of TensorFlow 1."""
    df = digit_rows(spark).selectExpr("*", "cast(id % 3 as float) as x", "cast(id % 3 * 2 as float) as y")
    return {"df": df, "test_df": df, "build_model": digit_model, "build_graph": build_graph}


def build_model() -> Any:
    import keras

    model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(10, activation="softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def build_graph() -> Any:
    import tensorflow as tf

    x = tf.compat.v1.placeholder(tf.float32, [None], "x")
    y = tf.compat.v1.placeholder(tf.float32, [None], "y")
    weight = tf.compat.v1.get_variable("weight", initializer=0.0)
    loss = tf.reduce_mean((weight * x - y) ** 2)
    return loss, tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss), [weight]


def days(spark: "SparkSession", folder: Path) -> Names:
    """The rows of two days, and a model for them."""
    from pyspark.sql import functions as F

    x = F.array(F.rand(1), F.rand(2)).cast("array<float>").alias("x")
    rows = spark.range(ROWS).select(x).withColumn("y", F.col("x")[0] * F.col("x")[1]).cache()
    return {"df": rows, "monday": rows, "tuesday": rows, "build_model": build_small_model}


def build_small_model() -> Any:
    import keras

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def models_to_score(spark: "SparkSession", folder: Path) -> Names:
    """A SavedModel of images, models with several inputs, and rows for all of them."""
    import keras

    image, meta = keras.Input((28, 28), name="image"), keras.Input((1,), name="meta")
    flat = keras.layers.Flatten()(image)
    keras.Model(image, keras.layers.Dense(10)(flat)).export(folder / "models/mnist/1", verbose=False)
    df = pictures(spark).selectExpr(
        "*",
        "image as pixels",
        "cast(repeat('x', 784) as binary) as jpeg_decoded",
        "named_struct('age', x) as person",
        "x as age",
        "x as income",
        "x as height",
    )
    return {
        "df": df,
        "two_inputs": keras.Model(
            [image, meta], keras.layers.Dense(1)(keras.layers.Concatenate()([flat, meta]))
        ),
        "flat": keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)]),
    }


def record_files(spark: "SparkSession", folder: Path) -> Names:
    """TFRecord files, a csv, and two images in MNIST's format."""
    df = pictures(spark).select("image", "label", "day")
    emberflow.tfrecord.write(df.coalesce(2), str(folder / "mnist/train"))
    for name in ("incoming", "train"):
        emberflow.tfrecord.write(df.select("image", "label").coalesce(1), str(folder / name))
    idx = {"train-images-idx3-ubyte.gz": (0x803, (2, 28, 28)), "train-labels-idx1-ubyte.gz": (0x801, (2,))}
    for name, (magic, shape) in idx.items():
        size = 2 * 784 if len(shape) > 1 else 2
        head = struct.pack(f">{1 + len(shape)}I", magic, *shape)
        (folder / name).write_bytes(gzip.compress(head + bytes(size)))
    (folder / "data.csv").write_text("length,width\n1.5,2\n2.5,3\n")
    return {"df": df}


def table_files(spark: "SparkSession", folder: Path) -> Names:
    """The rows that the command line reads."""
    lines = [f"{at / 64},{1 - at / 64},{at % 3}" for at in range(64)]
    for name in ("flowers.csv", "new-flowers.csv", "rows.csv"):
        (folder / name).write_text("\n".join(["length,width,kind", *lines]) + "\n")
    return {}


def old_keras(spark: "SparkSession", folder: Path) -> Names:
    """Nothing: but importing the packages chooses a Keras for their process, and that of the tests keeps its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "environ", os.environ.copy())
        import spark_tensorflow_distributor  # noqa: F401
        import tensorflowonspark  # noqa: F401
    return {}


def labelled_lines(spark: "SparkSession", folder: Path) -> Names:
    """A csv file of labels and pixels, for a program that is not changed."""
    lines = [
        ",".join(map(str, [at % 10, *((at * place) % 256 for place in range(784))])) for at in range(400)
    ]
    (folder / "mnist.csv").write_text("\n".join(lines) + "\n")
    return old_keras(spark, folder)


def project(spark: "SparkSession", folder: Path) -> Names:
    """A project's folder where there is no Hops."""
    os.environ["HOPS_PROJECT_PATH"] = str(folder)
    return {}


def readme(spark: "SparkSession", folder: Path) -> Names:
    """The page makes its own rows; its command lines need a file and a program."""
    import keras  # noqa: F401 - the page imports it, and functions that it defines use it

    (folder / "model.py").write_text(
        "import keras\n\n\ndef build_model():\n"
        "    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, 'softmax')])\n"
        "    model.compile('adam', 'sparse_categorical_crossentropy')\n    return model\n"
    )
    return table_files(spark, folder)


def keras_imported(spark: "SparkSession", folder: Path) -> Names:
    """The page makes its own rows."""
    import keras  # noqa: F401 - the page imports it, and functions that it defines use it

    return {}


PREAMBLES: "dict[str, Callable[[SparkSession, Path], Names]]" = {
    "README.md": readme,
    "docs/asynchronous.md": digits,
    "docs/commands.md": table_files,
    "docs/data-parallel.md": small_images,
    "docs/estimator.md": features_and_label,
    "docs/feeding.md": features_and_label,
    "docs/function-estimator.md": features_and_label,
    "docs/getting-started.md": keras_imported,
    "docs/hadoop-tfrecord.md": records,
    "docs/index.md": days,
    "docs/live.md": days,
    "docs/migrate/hops.md": project,
    "docs/migrate/spark-tensorflow-distributor.md": old_keras,
    "docs/migrate/tensorflowonspark.md": labelled_lines,
    "docs/migrate/tensorspark.md": digits,
    "docs/predict.md": models_to_score,
    "docs/roles-gpus-restarts.md": days,
    "docs/streaming.md": clicks,
    "docs/tfrecord.md": record_files,
}
