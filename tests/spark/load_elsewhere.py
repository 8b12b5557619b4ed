"""A program of its own: loads a saved pipeline in a new Spark session and prints what it predicts.

``python -m tests.spark.load_elsewhere PATH MASTER``, where MASTER may be a Connect server's address.
"""

import json
import sys

from pyspark.ml import PipelineModel
from pyspark.sql import SparkSession

from tests.spark.keras_models import flower_rows, predictions


def main() -> None:
    path, master = sys.argv[1:]
    builder = SparkSession.builder
    spark = (builder.remote(master) if master.startswith("sc:") else builder.master(master)).getOrCreate()
    scored = PipelineModel.load(path).transform(flower_rows(spark))
    print(json.dumps(predictions(scored)))
    spark.stop()


if __name__ == "__main__":
    main()
