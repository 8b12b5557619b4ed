"""A driver that trains on files, for the test that kills it: ``python -m tests.spark.stream_driver FOLDER``."""

import sys
from pathlib import Path

import emberflow as ef
from tests.sessions import SETTINGS
from tests.spark.test_train_stream import count_rows, files


def main(folder: Path) -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local-cluster[2,1,1024]").config(map=SETTINGS).getOrCreate()
    with ef.cluster(count_rows, workers=1, spark=spark, verbose=False) as cluster:
        query = cluster.train_stream(files(spark, folder / "in"), checkpoint=str(folder / "checkpoint"))
        query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
