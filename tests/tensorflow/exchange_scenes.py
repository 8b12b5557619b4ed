"""How gradients are exchanged: how often, rounded, and when a step fails midway. Each runs on all ranks at once."""
# ruff: noqa: BLE001 - the tests judge all errors

from typing import Any

import keras
import numpy as np

import tensorflow as tf
from emberflow.errors import ConfigError
from emberflow.strategies.data_parallel.distribute import distribute
from tests.tensorflow import parallel_cases as cases
from tests.tensorflow import parallel_term_cases as terms
from tests.tensorflow.parallel_scenes import CASE, bits, fresh, rows


class Counting:
    """A transport that counts its sums."""

    def __init__(self, transport: Any) -> None:
        self._transport, self.sums = transport, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def sum(self, tensors: list[Any]) -> list[Any]:
        self.sums += 1
        return list(self._transport.sum(tensors))

    def average(self, head: Any, tensors: list[Any], **options: Any) -> Any:
        self.sums += 1
        return self._transport.average(head, tensors, **options)


def exchanges_of_a_step(transport: Any, folder: str) -> list[int]:
    """How many sums a training step takes: of a mean, and of a mean with an added sum."""

    def count(build: Any) -> int:
        counting = Counting(transport)
        model = distribute(fresh(transport.rank, build), counting)
        model.run_eagerly = True
        batches = cases.batches_of(CASE, cases.EVEN, transport.rank)
        model.train_on_batch(*batches[0])
        before = counting.sums
        model.train_on_batch(*batches[1])
        return counting.sums - before

    return [count(CASE.build), count(lambda: terms.through(terms.AddLoss("sum")))]


def wide() -> Any:
    """A model with enough numbers that they are rounded."""
    layers = [keras.layers.Dense(90, activation="tanh") for _ in range(2)]
    model = keras.Sequential([keras.Input((6,)), *layers, keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model


def rounded_gradients(transport: Any, folder: str) -> dict[str, Any]:
    """Train with gradients as they are and with rounded ones, from the same weights."""
    trained = {}
    for wire_dtype in ("float32", "bfloat16"):
        model = distribute(fresh(transport.rank, wide), transport, wire_dtype=wire_dtype)
        model.fit(rows(transport), epochs=8, verbose=0)
        trained[wire_dtype] = model
    pairs = zip(*(model.get_weights() for model in trained.values()), strict=True)
    distance = max(float(np.abs(exact - rounded).max()) for exact, rounded in pairs)
    return {"bits": bits(trained["bfloat16"]), "distance": distance}


def rounding_is_refused(transport: Any, folder: str) -> str:
    try:
        distribute(fresh(transport.rank, wide), transport, wire_dtype="bfloat16")
    except ConfigError as error:
        return str(error)
    return "accepted"


class Failing(keras.layers.Layer):  # type: ignore[misc]
    """Passes values on; its gradient fails on one rank, when later layers' gradients are already on their way."""

    def __init__(self, *, fails: bool) -> None:
        super().__init__()
        self.fails = fails

    def call(self, inputs: Any) -> Any:
        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def passed(values: Any) -> Any:
            def gradient(upstream: Any) -> Any:
                return tf.debugging.check_numerics(upstream / (0.0 if self.fails else 1.0), "by the test")

            return tf.identity(values), gradient

        return passed(inputs)


def a_step_fails_in_the_middle(transport: Any, folder: str) -> str:
    layers = [
        keras.layers.Dense(8),
        Failing(fails=transport.rank == 1),
        keras.layers.Dense(8),
        keras.layers.Dense(1),
    ]
    model = keras.Sequential([keras.Input((6,)), *layers])
    model.compile(keras.optimizers.SGD(0.05), "mse")
    try:
        distribute(model, transport).fit(rows(transport), verbose=0)
    except Exception as error:
        transport.close()
        return f"{type(error).__name__}: {error}"
    return "nothing"
