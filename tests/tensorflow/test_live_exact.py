"""Rounds of a live cluster train a distributed model exactly as one process would."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import emberflow as ef

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("nothing_left")
ROUNDS = ((0, 90, 1), (90, 131, 3))  # first row, end, epochs: uneven over two workers


def build() -> Any:
    import keras

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse", metrics=["mae"])
    return model


def columns(first: int, end: int) -> "tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]":
    x = np.arange(first, end, dtype=np.float32) / 131
    return x[:, None], (3 * x**2)[:, None]


@pytest.mark.smoke
def test_two_workers_over_several_rounds_equal_one_process(spark_cluster: "SparkSession") -> None:
    def learn(ctx: Any) -> tuple[list[Any], list[dict[str, float]]]:
        model, logs = ctx.distribute(build()), []
        for each in ctx.rounds():
            rows = each.dataset(features="x", label="y", batch_size=100)  # all rows in one step
            logs.append({name: values[0] for name, values in model.fit(rows, verbose=0).history.items()})
        return model.get_weights(), logs

    with ef.cluster(learn, workers=2, spark=spark_cluster, verbose=False) as cluster:
        for first, end, epochs in ROUNDS:
            rows = spark_cluster.range(first, end, 1, 3).selectExpr("cast(id / 131 as float) x")
            cluster.train(rows.selectExpr("x", "cast(3 * x * x as float) y"), epochs=epochs)
    weights, logs = cluster.stop().value

    model, expected = build(), []
    for first, end, epochs in ROUNDS:
        x, y = columns(first, end)
        for _ in range(epochs):
            history = model.fit(x, y, batch_size=len(x), verbose=0).history
            expected.append({name: values[0] for name, values in history.items()})
    for mine, its in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_allclose(mine, its, rtol=0, atol=1e-5)
    for seen, wanted in zip(logs, expected, strict=True):
        assert seen == pytest.approx(wanted, abs=1e-5)
