"""A Spark ML Pipeline with a training function of your own: fit, save, load, score.

    python examples/pipeline.py                  a Spark of its own, on this machine
    python examples/pipeline.py --tiny

Spark's own stages prepare the columns, `ef.FunctionEstimator` trains with the function below, and the stage that it
fits, an `ef.SavedModelTransformer`, scores. The saved pipeline holds the model; programs that load it need no
training code.
"""

import argparse
import tempfile
import uuid
from typing import Any

import emberflow as ef

KINDS = ("circle", "square", "cross")


def drawings(spark: Any, rows: int) -> Any:
    """Return rows of eight measurements and a kind, as a table in a database would have them."""
    from pyspark.sql import functions as F

    kind = F.col("id") % len(KINDS)
    measured = [(kind * (place % 3) + F.randn(place)).alias(f"m{place}") for place in range(8)]
    names = F.array(*map(F.lit, KINDS))
    return spark.range(rows).select(*measured, F.element_at(names, (kind + 1).cast("int")).alias("kind"))


def train(ctx: Any, folder: str, epochs: int) -> str | None:
    """Train on all workers, with validation, and export; runs on every node."""
    import keras

    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(len(KINDS), "softmax")]
    )
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
    model = ctx.distribute(model)
    fitted = model.fit(
        ctx.dataset("train", features="measured", label="index", batch_size=32),
        validation_data=ctx.dataset("validation", features="measured", label="index", batch_size=256),
        epochs=epochs,
        verbose=0,
    )
    if ctx.is_chief:
        print(f"validation accuracy {fitted.history['val_accuracy'][-1]:.3f}")
    return ctx.export(model, f"{folder}/{uuid.uuid4()}")


def main(spark: Any, rows: int, epochs: int, folder: str) -> float:
    """Return the share of rows that the loaded pipeline scores right."""
    from pyspark.ml import Pipeline, PipelineModel
    from pyspark.ml.feature import StringIndexer, VectorAssembler
    from pyspark.sql import functions as F

    index = StringIndexer(inputCol="kind", outputCol="index", stringOrderType="alphabetAsc")
    assemble = VectorAssembler(inputCols=[f"m{place}" for place in range(8)], outputCol="measured")
    network = ef.FunctionEstimator(
        train,
        args={"folder": f"{folder}/models", "epochs": epochs},
        inputCols=["measured", "index"],
        validationSplit=0.1,
        inputs="measured",
        outputs="scores",
        numWorkers=2,
    )
    fitted = Pipeline(stages=[index, assemble, network]).fit(drawings(spark, rows))
    fitted.write().overwrite().save(f"{folder}/pipeline")

    scored = PipelineModel.load(f"{folder}/pipeline").transform(drawings(spark, rows))
    best = F.expr("array_position(scores, array_max(scores)) - 1")
    scored.select("kind", "index", best.alias("prediction"), "scores").show(5, truncate=False)
    return float(scored.select(F.mean((best == F.col("index")).cast("int"))).first()[0])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A Spark ML Pipeline with a training function.")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="few rows: does it run here?")
    options = parser.parse_args()
    size = (600, 5) if options.tiny else (options.rows, options.epochs)

    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[2]").getOrCreate()
    with tempfile.TemporaryDirectory() as name:
        print(f"accuracy of the loaded pipeline {main(session, *size, name):.3f}")
