"""A driver that trains on files, for tests that kill or outrun it: ``stream_driver FOLDER CHECKPOINT``."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import emberflow as ef
from tests.sessions import SETTINGS
from tests.spark.test_train_stream import count_rows, files
from tests.spark.watching import await_file


def held_while(folder: Path) -> Callable[[Any], None]:
    """Return `count_rows` that stands still before it stores, as long as there is a file "hold" and none "go-on"."""

    def count(ctx: Any) -> None:
        count_rows(ctx, before_store=lambda _: wait(folder))

    return count


def wait(folder: Path) -> None:
    if (folder / "hold").exists():
        (folder / "held").touch()
        await_file(folder / "go-on")


def main(folder: Path, checkpoint: str) -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local-cluster[2,1,1024]").config(map=SETTINGS).getOrCreate()
    with ef.cluster(held_while(folder), workers=1, spark=spark, verbose=False) as cluster:
        query = cluster.train_stream(files(spark, folder / "in"), checkpoint=checkpoint)
        query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
