"""A driver of its own, for the tests that end one: ``python -m tests.spark.lonely_driver FOLDER MASTER``."""

import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import emberflow as ef
from tests.sessions import SETTINGS
from tests.spark.watching import begin


def main(folder: Path, master: str) -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master(master).config(map=SETTINGS).getOrCreate()

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
