"""A driver of its own, for the tests that end one: ``python -m tests.spark.lonely_driver FOLDER MASTER``."""

import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import emberflow as ef
from tests.conftest import prepare_environment
from tests.sessions import SETTINGS
from tests.spark.watching import begin


def main(folder: Path, master: str) -> None:
    import os

    mark = os.environ["EMBERFLOW_TESTS"]
    prepare_environment()
    os.environ["EMBERFLOW_TESTS"] = mark  # our processes are the test's own
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master(master).config(map=SETTINGS).getOrCreate()
    (folder / "application").write_text(str(spark.sparkContext.applicationId))

    def train(ctx: Any) -> None:
        begin(folder, ctx.rank)
        signal.pause()

    try:
        ef.run(train, workers=2, spark=spark)
    except BaseException as error:  # noqa: BLE001 - the test reads what it was
        traceback.print_exc()
        (folder / "raised").write_text(type(error).__name__)
        spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
