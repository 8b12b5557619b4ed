"""What is not a comparison of numbers: saving, stopping, failing, refusing. Each runs on all ranks at once."""
# ruff: noqa: BLE001 - Keras names the arguments of callbacks; the tests judge all errors

import contextlib
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

import tensorflow as tf
from emberflow.errors import EmberflowError
from emberflow.strategies.data_parallel.distribute import distribute
from emberflow.strategies.data_parallel.probe import probe
from emberflow.strategies.data_parallel.shared_statistics import HOOKED
from tests.tensorflow import parallel_cases as cases
from tests.tensorflow import parallel_term_cases as terms

CASE = cases.CASES["sgd"]


def fresh(rank: int, build: Any = CASE.build) -> Any:
    keras.backend.clear_session()
    keras.utils.set_random_seed(1 + rank)
    return build()


def rows(transport: Any) -> Any:
    steps = cases.THREE if transport.ranks == 3 else cases.UNEVEN
    return cases.dataset(cases.batches_of(CASE, steps, transport.rank))


def bits(model: Any) -> str:
    return b"".join(weight.tobytes() for weight in model.get_weights()).hex()


def saved_files_are_plain_keras(transport: Any, folder: str) -> dict[str, Any]:
    model = distribute(fresh(transport.rank, cases.shared), transport)
    model.fit(rows(transport), epochs=1, verbose=0)
    path = Path(folder) / f"{transport.rank}"
    model.save(f"{path}.keras")
    model.export(f"{path}-saved", verbose=False)
    loaded = keras.models.load_model(f"{path}.keras")
    clone = keras.models.clone_model(model)
    served = tf.saved_model.load(f"{path}-saved")
    x = cases.features(4)[0]
    return {
        "loaded": bits(loaded) == bits(model),
        "iterations": int(loaded.optimizer.iterations),
        "hooked": [
            name
            for name in ("train_step", "fit", HOOKED)
            for each in (loaded, clone)
            if any(name in vars(layer) for layer in (each, *each.layers))
        ],
        "served": bool(np.allclose(served.serve(x), model(x), atol=1e-6)),
        "predicted": model.predict(x[: transport.rank + 1], verbose=0).shape[0],
    }


class StopAt(keras.callbacks.Callback):  # type: ignore[misc]
    """Stops after so many steps in all."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.left = step

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.left -= 1
        self.model.stop_training = self.left == 0


class StopAtEpoch(keras.callbacks.Callback):  # type: ignore[misc]
    """Stops at the end of the first epoch."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.stop_training = True


def one_rank_stops_at_a_step(transport: Any, folder: str) -> list[Any]:
    model = distribute(fresh(transport.rank), transport)
    mine = [StopAt(6)] if transport.rank == 1 else []
    history = model.fit(rows(transport), epochs=5, callbacks=mine, verbose=0)
    return [int(model.optimizer.iterations), len(history.epoch), bits(model)]


def one_rank_stops_at_the_last_step_of_an_epoch(transport: Any, folder: str) -> list[Any]:
    model = distribute(fresh(transport.rank), transport)
    mine = [StopAt(4)] if transport.rank == 1 else []
    history = model.fit(rows(transport), epochs=5, callbacks=mine, verbose=0)
    return [int(model.optimizer.iterations), len(history.epoch), bits(model)]


def one_rank_stops_at_an_epoch(transport: Any, folder: str) -> list[Any]:
    model = distribute(fresh(transport.rank), transport)
    mine = [StopAtEpoch()] if transport.rank == 1 else []
    history = model.fit(rows(transport), epochs=5, callbacks=mine, verbose=0)
    return [int(model.optimizer.iterations), len(history.epoch), bits(model)]


def compiled_after_distribute(transport: Any, folder: str) -> list[Any]:
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
    distribute(model, transport)
    model.compile(keras.optimizers.Adam(0.1), "mse")
    model.fit(rows(transport), epochs=1, verbose=0)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    history = model.fit(rows(transport), epochs=1, verbose=0)
    return [bits(model), history.history["loss"]]


class Crash(keras.callbacks.Callback):  # type: ignore[misc]
    """Fails at the start of an epoch, on all ranks."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == 2:
            raise InterruptedError


def backup_is_restored_by_all(transport: Any, folder: str) -> dict[str, Any]:
    def fit(model: Any, *callbacks: Any) -> Any:
        return model.fit(rows(transport), epochs=4, callbacks=list(callbacks), verbose=0)

    def optimizer() -> Any:
        return cases.dense(cases.adam())

    whole = distribute(fresh(transport.rank, optimizer), transport)
    fit(whole)
    # A folder of its own for each rank: what is not the chief's must never come to be.
    backup = f"{folder}/backup-{transport.rank}"
    broken = distribute(fresh(transport.rank, optimizer), transport)
    with contextlib.suppress(InterruptedError):
        fit(broken, keras.callbacks.BackupAndRestore(backup), Crash())
    resumed = distribute(fresh(7 + transport.rank, optimizer), transport)
    history = fit(resumed, keras.callbacks.BackupAndRestore(backup, delete_checkpoint=False))
    return {
        "epochs": history.epoch,
        "distance": max(
            float(np.abs(a - b).max())
            for a, b in zip(whole.get_weights(), resumed.get_weights(), strict=True)
        ),
        "iterations": int(resumed.optimizer.iterations),
        "has_files": Path(backup).exists(),
        "bits": bits(resumed),
    }


def inexact_models_are_refused(transport: Any, folder: str) -> list[str]:
    def refusal(build: Any) -> str:
        try:
            distribute(build(), transport)
        except EmberflowError as error:
            return f"{type(error).__name__}: {error}"
        return "accepted"

    losses = keras.losses
    return [
        refusal(lambda: cases.dense("sgd", losses.MeanSquaredError(reduction="mean_with_sample_weight"))),
        refusal(terms.stateful),
        refusal(lambda: cases.dense("sgd", losses.MeanSquaredError())),
    ]


def inexact_terms_are_refused(transport: Any, folder: str) -> list[str]:
    """What only the first batch shows: the error of each `fit`."""

    def refusal(build: Any, **options: Any) -> str:
        model = distribute(fresh(transport.rank, build), transport, **options)
        try:
            model.fit(rows(transport), verbose=0)
        except EmberflowError as error:
            return f"{type(error).__name__}: {error}"
        return bits(model)

    return [
        refusal(lambda: terms.through(terms.AddLoss("variance"))),
        refusal(lambda: cases.dense("sgd", metrics=[terms.Largest()])),
        refusal(lambda: terms.through(terms.AddLoss("variance")), exact=False),
        refusal(lambda: terms.through(terms.AddInTraining())),
    ]


def probe_leaves_nothing(transport: Any, folder: str) -> list[str]:
    """Which variables and random states a probe has changed."""

    def build() -> Any:
        layers = keras.layers
        model = keras.Sequential(
            [
                keras.Input((6,)),
                layers.Dense(8),
                layers.BatchNormalization(),
                layers.Dropout(0.5),
                layers.Dense(1),
            ]
        )
        model.compile("adam", "mse", metrics=["mae", keras.metrics.R2Score()])
        return model

    model = distribute(fresh(transport.rank, build), transport)
    model.fit(rows(transport), verbose=0)
    metrics = [variable for metric in model.metrics for variable in metric.variables]
    variables = [*model.variables, *model.optimizer.variables, *metrics]

    def state() -> list[bytes]:
        return [np.asarray(each).tobytes() for each in variables] + [np.random.get_state()[1].tobytes()]  # type: ignore[index]

    before = state()
    probe(vars(model)["fit"].replica, next(iter(rows(transport))))
    names = [*(variable.path for variable in variables), "numpy"]
    return [name for name, now, then in zip(names, state(), before, strict=True) if now != then]


def other_models_are_refused(transport: Any, folder: str) -> str:
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1 + transport.rank)])
    try:
        distribute(model, transport)
    except EmberflowError as error:
        return str(error)
    return "accepted"


def trained_by_hand(transport: Any, folder: str) -> list[Any]:
    """`train_on_batch`, and a loop of the user's own around the optimizer."""
    model = distribute(fresh(transport.rank), transport)
    batches = cases.batches_of(CASE, cases.EVEN, transport.rank)
    logs = [model.train_on_batch(*batch, return_dict=True)["loss"] for batch in batches]
    for x, y in batches:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - y))
        model.optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )
    return [bits(model), [float(each) for each in logs]]


class Tick(keras.callbacks.Callback):  # type: ignore[misc]
    """Leaves a file after the first epoch, for the test to know that training runs."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if epoch == 0:
            self.path.touch()


def train_for_ever(transport: Any, folder: str) -> list[Any]:
    model = distribute(fresh(transport.rank), transport)
    tick = Tick(Path(folder) / f"running-{transport.rank}")
    try:
        model.fit(rows(transport), epochs=1_000_000, callbacks=[tick], verbose=0)
    except Exception as error:
        return [type(error).__name__, str(error), time.time()]
    return []


def a_rank_raises(transport: Any, folder: str) -> str:
    class Raise(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            transport.close()
            raise InterruptedError("by the user's own callback")

    model = distribute(fresh(transport.rank), transport)
    try:
        model.fit(rows(transport), epochs=3, callbacks=[Raise()] if transport.rank else [], verbose=0)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"
