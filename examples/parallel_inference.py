"""Inference on many files at once: independent processes, each with its own model and its own files.

    python examples/parallel_inference.py                  a Spark of its own, on this machine
    python examples/parallel_inference.py --tiny

`ef.run_parallel` runs a program that reads TFRecord files with tf.data and writes its predictions, once per shard.
Where the rows are in a DataFrame, `ef.predict` does all of it in one line, and the example ends with that.
"""

import argparse
import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import emberflow as ef

SHARDS = 2


def export_model(folder: str) -> None:
    """Write the SavedModel that is used: the sum of 16 numbers."""
    import keras

    model = keras.Sequential([keras.Input((16,), name="x"), keras.layers.Dense(1, kernel_initializer="ones")])
    model.export(folder, verbose=False)


def score_shard(ctx: Any, model_folder: str, records: str, output: str) -> int:
    """Score every file of this shard; return the number of rows. Runs in a process of its own."""
    import tensorflow as tf

    model = tf.saved_model.load(model_folder)
    files = sorted(str(file) for file in Path(records).glob("*.tfrecord"))[ctx.index :: SHARDS]
    features = {"id": tf.io.FixedLenFeature([], tf.int64), "x": tf.io.FixedLenFeature([16], tf.float32)}
    batches = tf.data.TFRecordDataset(files).batch(256).map(lambda rows: tf.io.parse_example(rows, features))
    rows = 0
    Path(output).mkdir(exist_ok=True)
    with (Path(output) / f"part-{ctx.index}.json").open("w") as file:
        for batch in batches:
            scores = model.serve(batch["x"])[:, 0].numpy()
            for number, score in zip(batch["id"].numpy(), scores, strict=True):
                file.write(json.dumps({"id": int(number), "score": float(score)}) + "\n")
            rows += len(scores)
    print(f"shard {ctx.index}: {rows} rows of {len(files)} files")
    return rows


def main(spark: Any, rows: int, folder: str) -> float:
    """Return the largest difference between the two ways."""
    from pyspark.sql import functions as F

    numbers = F.array(*(F.rand(seed) for seed in range(16))).cast("array<float>")
    df = spark.range(0, rows, 1, 5).select("id", numbers.alias("x"))
    ef.tfrecord.write(df, f"{folder}/records")
    export_model(f"{folder}/model")

    shard = partial(
        score_shard,
        model_folder=f"{folder}/model",
        records=f"{folder}/records",
        output=f"{folder}/predictions",
    )
    results = ef.run_parallel(shard, tasks=SHARDS, spark=spark)
    for result in results:
        print(result.reports[0].log_tail.strip())

    files = spark.read.schema("id bigint, score double").json(f"{folder}/predictions")
    records = ef.tfrecord.read(spark, f"{folder}/records")
    frame = ef.predict(records, f"{folder}/model", inputs="x", outputs={"output_0": ("prediction", "float")})
    both = frame.join(files, "id")
    both.select("id", "score", "prediction").show(3)
    worst, joined = both.select(F.max(F.abs(F.col("score") - F.col("prediction"))), F.count("*")).first()
    if joined != rows:
        raise SystemExit(f"{joined} of {rows} rows were scored")
    return float(worst)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Score TFRecord files in independent processes.")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--tiny", action="store_true", help="few rows: does it run here?")
    options = parser.parse_args()

    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[2]").getOrCreate()
    with tempfile.TemporaryDirectory() as name:
        difference = main(session, 500 if options.tiny else options.rows, name)
        print(f"largest difference to ef.predict {difference:.6f}")
