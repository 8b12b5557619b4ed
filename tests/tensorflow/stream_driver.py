"""A driver of its own that learns from files: ``python -m tests.tensorflow.stream_driver FOLDER``.

The file ``restart`` in the folder asks it to stop the query and its nodes and to start both again; it then deletes
the file.
"""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import emberflow as ef
from tests.sessions import SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def counting_model() -> Any:
    """Return a model whose weights are the number of rows and the sum of their ids."""
    import keras

    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    model = keras.Sequential([keras.Input((2,)), layer])
    model.compile(keras.optimizers.SGD(1.0), keras.losses.MeanAbsoluteError(reduction="sum"))
    return model


def counting_estimator(workers: int, **params: Any) -> ef.KerasEstimator:
    columns = {"featuresCol": "features", "labelCol": "label"}
    options = {"batchSize": 4, "numWorkers": workers, "verbose": False} | params
    return ef.KerasEstimator(model=counting_model, **columns, **options)


def rows_of(spark: "SparkSession", folder: Path) -> "DataFrame":
    folder.mkdir(exist_ok=True)
    rows = spark.readStream.schema("features array<float>, label float")
    return rows.option("maxFilesPerTrigger", 1).json(str(folder))


def main(folder: Path) -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local-cluster[2,1,1024]").config(map=SETTINGS).getOrCreate()
    while True:
        rows = rows_of(spark, folder / "in")
        learning = counting_estimator(workers=2).fitStream(
            rows, str(folder / "state"), str(folder / "models")
        )
        (folder / "restart").unlink(missing_ok=True)
        while not (folder / "restart").exists():
            if not learning.query.isActive:
                learning.awaitTermination()
            time.sleep(0.05)
        learning.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
