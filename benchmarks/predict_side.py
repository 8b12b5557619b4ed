"""One side of the scoring benchmark: a driver with a warm session, run by its own Python.

``python predict_side.py models FOLDER`` writes the models. ``python predict_side.py SIDE FOLDER`` writes the rows if
they are not there, then scores for each line of JSON on standard input, ``[side, model, kind, rows]``, and answers
``done``.
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "2g",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}
PIXELS = 784
BATCH = 1024
PARTITIONS = 8


def write_models(folder: Path) -> None:
    import keras

    layers = keras.layers
    mlp = keras.Sequential(
        [keras.Input((PIXELS,), name="x"), layers.Dense(128, "relu"), layers.Dense(10, "softmax")]
    )
    convolution = [layers.Reshape((28, 28, 1)), layers.Conv2D(8, 3, 2, activation="relu"), layers.Flatten()]
    cnn = keras.Sequential([keras.Input((PIXELS,), name="x"), *convolution, layers.Dense(10, "softmax")])
    mlp.export(str(folder / "mlp"), verbose=False)
    cnn.export(str(folder / "cnn"), verbose=False)


def write_rows(spark: Any, folder: Path, rows: int) -> None:
    """Write the rows once: numbers, as an array and as bytes."""

    def fill(batches: Iterator[Any]) -> Iterator[Any]:
        import numpy as np
        import pyarrow as pa

        for batch in batches:
            pixels = np.random.default_rng(batch.column(0)[0].as_py()).random(
                (batch.num_rows, PIXELS), np.float32
            )
            offsets = pa.array(np.arange(batch.num_rows + 1, dtype=np.int32) * PIXELS)
            columns = [
                batch.column(0),
                pa.ListArray.from_arrays(offsets, pa.array(pixels.reshape(-1))),
                pa.array([row.tobytes() for row in pixels], pa.binary()),
            ]
            yield pa.RecordBatch.from_arrays(columns, names=["id", "array", "binary"])

    made = spark.range(0, rows, 1, PARTITIONS).mapInArrow(fill, "id long, array array<float>, binary binary")
    made.write.parquet(str(folder / "rows"))


def score_no_model(df: Any, model: str, kind: str) -> Any:  # noqa: ARG001 - that is the point
    def constant(batches: Iterator[Any]) -> Iterator[Any]:
        import numpy as np
        import pyarrow as pa

        for batch in batches:
            rows = batch.num_rows
            offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * 10)
            answer = pa.ListArray.from_arrays(offsets, pa.array(np.zeros(rows * 10, np.float32)))
            yield pa.RecordBatch.from_arrays([batch.column("id"), answer], names=["id", "prediction"])

    return df.select("id", kind).mapInArrow(constant, "id long, prediction array<float>")


def score_emberflow(df: Any, model: str, kind: str) -> Any:
    from emberflow.predict import predict

    return predict(df, model, inputs=kind, keep=["id"], batch_size=BATCH)


def loader(model: str) -> Callable[[], Callable[[Any], Any]]:
    """Return what loads the signature as a function of a float32 matrix."""

    def load() -> Callable[[Any], Any]:
        import tensorflow as tf

        loaded = tf.saved_model.load(model)
        signature = loaded.signatures["serving_default"]

        def answer(x: Any) -> Any:
            return signature(x=tf.constant(x, tf.float32))["output_0"].numpy()

        answer.model = loaded  # type: ignore[attr-defined] # its variables must live
        return answer

    return load


def score_predict_batch_udf(df: Any, model: str, kind: str) -> Any:
    from pyspark.ml.functions import predict_batch_udf
    from pyspark.sql.types import ArrayType, FloatType

    load = loader(model)

    def make_predict_fn() -> Callable[[Any], Any]:
        import numpy as np

        answer = load()
        if kind == "array":
            return answer
        return lambda values: answer(np.stack([np.frombuffer(value, np.float32) for value in values]))

    shapes = {"input_tensor_shapes": [[PIXELS]]} if kind == "array" else {}
    score = predict_batch_udf(make_predict_fn, return_type=ArrayType(FloatType()), batch_size=BATCH, **shapes)
    return df.select("id", score(kind).alias("prediction"))


def score_pandas_udf(df: Any, model: str, kind: str) -> Any:
    import pandas as pd
    from pyspark.sql.functions import pandas_udf

    load = loader(model)

    def score(series: Iterator[pd.Series]) -> Iterator[pd.Series]:
        import numpy as np

        answer = load()
        for values in series:
            rows = values if kind == "array" else [np.frombuffer(value, np.float32) for value in values]
            parts = [answer(np.stack(rows[at : at + BATCH])) for at in range(0, len(rows), BATCH)]
            yield pd.Series(list(np.concatenate(parts)))

    return df.select("id", pandas_udf(score, "array<float>")(kind).alias("prediction"))


def score_tfmodel(df: Any, model: str, kind: str) -> Any:
    from tensorflowonspark.pipeline import TFModel

    scorer = TFModel({}).setInputMapping({kind: "x"}).setOutputMapping({"output_0": "prediction"})
    scorer.setExportDir(model).setSignatureDefKey("serving_default").setTagSet("serve").setBatchSize(BATCH)
    return scorer.transform(df.select(kind))


def session() -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local-cluster[2,1,2048]").appName("predict")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    if name == "models":
        write_models(folder)
        return
    spark = session()
    if not (folder / "rows").exists():
        write_rows(spark, folder, 100_000)
    print("done", flush=True)
    for line in sys.stdin:
        side, model, kind, rows = json.loads(line)
        df = spark.read.parquet(str(folder / "rows")).where(f"id < {rows}")
        scored = globals()[f"score_{side}"](df, str(folder / model), kind)
        scored.write.format("noop").mode("overwrite").save()
        print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
