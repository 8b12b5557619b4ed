"""A model that keeps learning from files as they arrive, while another stream is scored with its newest version.

    python examples/streaming.py                 a Spark of its own, on this machine
    python examples/streaming.py --days 5
    python examples/streaming.py --tiny          two files after the first

Each day brings a file of measurements. The model is trained on it, stored, and published as the next version; the
rows of the next day are scored with that version before the model learns from them.
"""

import argparse
import json
import random
import tempfile
from pathlib import Path
from typing import Any

import emberflow as ef

SCHEMA = "day int, features array<float>, label float"


def build_model() -> Any:
    import keras

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mean_squared_error")
    return model


def write_day(folder: Path, day: int, rows: int = 200) -> None:
    """Bring the rows of one day: the label is 3a - 2b. The file appears when it is complete."""
    numbers = random.Random(day)
    lines = []
    for _ in range(rows):
        a, b = numbers.uniform(-1, 1), numbers.uniform(-1, 1)
        lines.append(json.dumps({"day": day, "features": [a, b], "label": 3 * a - 2 * b}))
    folder.mkdir(exist_ok=True)
    aside = folder / f".{day}.tmp"
    aside.write_text("\n".join(lines) + "\n")
    aside.rename(folder / f"{day:03d}.json")


def error_of(spark: Any, day: int) -> float:
    """Return the mean error of the rows of a day, as they were scored when they came."""
    row = (
        spark.table("scored")
        .filter(f"day = {day}")
        .selectExpr("avg(abs(prediction - label)) as error")
        .first()
    )
    return float(row["error"])


def main(days: int, folder: Path) -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    incoming = folder / "incoming"
    write_day(incoming, 0)
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(incoming))
    estimator = ef.KerasEstimator(
        model=build_model, featuresCol="features", labelCol="label", epochs=5, verbose=False
    )
    with estimator.fitStream(rows, str(folder / "state"), str(folder / "models")) as learning:
        learning.query.processAllAvailable()
        model = ef.KerasModel.load(str(folder / "models"))
        scoring = model.transform(rows).writeStream.format("memory").queryName("scored").start()
        scoring.processAllAvailable()
        for day in range(1, days + 1):
            write_day(incoming, day)
            scoring.processAllAvailable()
            learning.query.processAllAvailable()
            print(f"day {day}: mean error {error_of(spark, day):.3f} before the model has learned from it")
        scoring.stop()
    versions = sorted(int(path.name) for path in (folder / "models").iterdir())
    print(f"published versions, the last ones kept: {versions}")
    spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--days", type=int, default=3, help="how many files arrive")
    parser.add_argument("--tiny", action="store_true", help="two files after the first: does it run here?")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        main(2 if arguments.tiny else arguments.days, Path(name))
