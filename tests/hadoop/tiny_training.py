"""A program for YARN: two nodes train a tiny model together; what they found goes to a folder on HDFS.

spark-submit --master yarn tiny_training.py FOLDER
"""

import json
import sys
from typing import Any

import emberflow as ef


def train(ctx: Any) -> dict[str, Any]:
    import keras
    import numpy as np

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    ctx.distribute(model)
    model.fit(ctx.dataset(features="x", label="y", batch_size=4), epochs=2, verbose=0)
    weights = [float(value) for weight in model.get_weights() for value in np.ravel(weight)]
    return {"rank": ctx.rank, "python": sys.executable, "weights": weights}


def main() -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("tiny").getOrCreate()
    rows = spark.range(16).selectExpr("array(id / 16f, 1 - id / 16f) as x", "cast(id as float) as y")
    result = ef.run(train, workers=2, data=rows, spark=spark)
    conf = spark.sparkContext.getConf()
    found = {
        "values": [report.value for report in result.reports],
        "driver": sys.executable,
        "application": spark.sparkContext.applicationId,
        "mode": conf.get("spark.submit.deployMode"),
    }
    spark.createDataFrame([(json.dumps(found),)], "value string").coalesce(1).write.text(sys.argv[1])
    spark.stop()


if __name__ == "__main__":
    main()
