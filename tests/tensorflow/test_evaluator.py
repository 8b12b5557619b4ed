"""An evaluator that evaluates checkpoints while the others train."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import emberflow as ef
from tests.spark.watching import await_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS = 3


def evaluate(ctx: Any, notes: Path) -> list[int]:
    """Evaluate each new checkpoint until the others are done; tell them after each, as a real one would not."""
    import numpy as np

    import tensorflow as tf

    seen: list[int] = []
    while not ctx.wait_until_over(0.02):
        found = ctx.latest_checkpoint()
        if found is None or found.step in seen:
            continue
        weight = tf.constant(np.load(found.path / "weight.npy"))
        ctx.report(step=found.step, loss=(weight - 1.0) ** 2)
        seen.append(found.step)
        (notes / f"evaluated-{found.step}").touch()
    return seen


def train(ctx: Any, notes: Path) -> float:
    """Halve a weight with both workers, and save it; wait for its evaluation, to show that it comes meanwhile."""
    import numpy as np

    import tensorflow as tf

    strategy = ctx.strategy()
    with strategy.scope():
        weight = tf.Variable(8.0, aggregation=tf.VariableAggregation.MEAN)

    @tf.function
    def halve() -> None:
        strategy.run(lambda: weight.assign_sub(0.5 * weight))

    for step in range(1, STEPS + 1):
        halve()
        ctx.save_checkpoint(lambda folder: np.save(folder / "weight.npy", weight.numpy()), step=step)
        if ctx.is_chief:
            await_file(notes / f"evaluated-{step}")
    return float(weight.numpy()) * strategy.num_replicas_in_sync


def test_checkpoints_are_evaluated_while_the_others_train(
    spark_gpus: "SparkSession", nothing_left: None, tmp_path: Path
) -> None:
    def fn(ctx: Any) -> Any:
        return evaluate(ctx, tmp_path) if ctx.role == "evaluator" else train(ctx, tmp_path)

    result = ef.run(
        fn,
        workers=2,
        evaluator=True,
        gpus=1,  # so that the workers' transport is TensorFlow's collectives, whose strategy ctx.strategy gives
        checkpoint_dir=str(tmp_path / "shared"),
        spark=spark_gpus,
        verbose=False,
    )
    assert [report.value for report in result.reports] == [2.0, 2.0, [1, 2, 3]]
    evaluated = [(metric.step, metric.values["loss"]) for metric in result.metrics if metric.rank == 2]
    assert evaluated == [(1, 9.0), (2, 1.0), (3, 0.0)]
