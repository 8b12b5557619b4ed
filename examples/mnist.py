"""MNIST from its four idx files: a DataFrame, a Keras model, two workers, a saved model.

    python examples/mnist.py FOLDER                          a Spark of its own, on this machine
    python examples/mnist.py FOLDER --input-mode files       nodes read TFRecord files themselves
    python examples/mnist.py FOLDER --output /models/mnist
    python examples/mnist.py --tiny                          drawn digits instead of MNIST's
    spark-submit --master yarn examples/mnist.py FOLDER      the cluster's Spark

examples/mnist/ has the same as shell scripts, on HDFS or S3: docs/walkthrough-mnist.md.

FOLDER (or the environment's EMBERFLOW_MNIST) holds the four files, gzipped or not, as they are distributed:
train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte.
"""

import argparse
import gzip
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import emberflow as ef

PARTS = {"train": "train", "test": "t10k"}


def build_model() -> Any:
    import keras

    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def find_files(folder: Path) -> dict[str, tuple[Path, Path]]:
    """Return the files of images and labels of both parts; end the program where one is missing."""
    found = {}
    for part, prefix in PARTS.items():
        wanted = (f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte")
        files = [next(iter(sorted(folder.glob(f"{name}*"))), None) for name in wanted]
        missing = [name for name, file in zip(wanted, files, strict=True) if file is None]
        if missing:
            sys.exit(
                f"MNIST's four idx files must be in one folder. Received: {folder}, without {missing[0]}[.gz].\n"
                "Fix: name the folder, python examples/mnist.py FOLDER, or set EMBERFLOW_MNIST to it."
            )
        found[part] = (files[0], files[1])
    return found


def read_idx(path: Path) -> Any:
    import numpy as np

    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    # Big-endian: two zeros, the kind of number, the number of axes, their lengths, the numbers.
    axes = data[3]
    shape = np.frombuffer(data, ">u4", count=axes, offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * axes).reshape(shape)


def draw_digits(folder: Path) -> None:
    """Write the four files with a few images: a bright bar in a place of its own for each digit, and noise."""
    import numpy as np

    random = np.random.default_rng(0)
    for prefix, rows in (("train", 1000), ("t10k", 200)):
        labels = np.arange(rows) % 10
        images = random.integers(0, 80, (rows, 28, 28))
        for image, label in zip(images, labels, strict=True):
            image[4 + 2 * label : 6 + 2 * label, 4:24] += 150
        for kind, numbers in (("images-idx3", images), ("labels-idx1", labels)):
            head = bytes([0, 0, 8, numbers.ndim]) + np.array(numbers.shape, ">u4").tobytes()
            (folder / f"{prefix}-{kind}-ubyte").write_bytes(head + numbers.astype(np.uint8).tobytes())


def frame_of(spark: Any, images: Path, labels: Path) -> Any:
    """Return a DataFrame of raw images (784 bytes each) and labels."""
    import pyarrow as pa

    pixels, answers = read_idx(images), read_idx(labels)
    rows = pa.table({"image": [each.tobytes() for each in pixels], "label": answers.astype("int64")})
    return spark.createDataFrame(rows)


def train(spark: Any, files: dict[str, tuple[Path, Path]], options: argparse.Namespace) -> float:
    """Train, test, save; return the share of test images that were classified correctly."""
    from pyspark.ml.evaluation import MulticlassClassificationEvaluator

    estimator = ef.KerasEstimator(
        model=build_model,
        featuresCol="image",
        labelCol="label",
        batchSize=64,  # of one worker
        epochs=options.epochs,
        numWorkers=options.workers,
    )
    rows = frame_of(spark, *files["train"])
    if options.input_mode == "spark":
        model = estimator.fit(rows)
    else:
        with tempfile.TemporaryDirectory() as folder:  # on a cluster: storage that all nodes share
            ef.tfrecord.write(rows, f"{folder}/train")
            model = estimator.fitFiles(
                ef.TFRecords(f"{folder}/train", features={"image": "bytes", "label": "int64"}), spark=spark
            )
    scored = model.transform(frame_of(spark, *files["test"]))
    accuracy = MulticlassClassificationEvaluator(metricName="accuracy").evaluate(scored)
    print(f"test accuracy {accuracy:.4f} of {scored.count():,} images")
    if options.output:
        model.write().overwrite().save(options.output)
        print(f"model saved to {options.output}")
    return float(accuracy)


def main() -> None:
    parser = argparse.ArgumentParser(description="MNIST with ef.KerasEstimator.")
    parser.add_argument("folder", nargs="?", default=os.environ.get("EMBERFLOW_MNIST", "."), type=Path)
    parser.add_argument("--input-mode", choices=["spark", "files"], default="spark")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--output", help="where the trained model goes")
    parser.add_argument("--tiny", action="store_true", help="a few drawn digits: does it run here?")
    options = parser.parse_args()
    if not options.tiny:
        start(find_files(options.folder), options)
        return
    with tempfile.TemporaryDirectory() as folder:
        draw_digits(Path(folder))
        start(find_files(Path(folder)), options)


def start(files: dict[str, tuple[Path, Path]], options: argparse.Namespace) -> None:
    """Train in the session of spark-submit, or in one of a Spark that ends with this program."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit started this program, here or inside the cluster
        from pyspark.sql import SparkSession

        train(SparkSession.builder.appName("mnist").getOrCreate(), files, options)
        return
    with ef.local_cluster(workers=options.workers) as cluster, cluster.session("mnist") as spark:
        train(spark, files, options)


if __name__ == "__main__":
    main()
