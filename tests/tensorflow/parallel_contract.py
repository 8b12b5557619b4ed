"""What the hooks rely on in Keras, by public names where there are any; a newer Keras may break a promise.

`broken_promises` names those that the installed Keras does not keep.
"""
# ruff: noqa: BLE001 - the promises stand in the docstrings, and may break in any way

import contextlib
import inspect
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

import tensorflow as tf

X, Y = np.ones((8, 3), np.float32), np.ones((8, 1), np.float32)


def small(**compiled: Any) -> Any:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", **compiled)
    return model


def spied(thing: Any, name: str, calls: list[str]) -> None:
    inner = getattr(thing, name)

    def spy(*args: Any, **kwargs: Any) -> Any:
        calls.append(f"{name} {'eager' if tf.executing_eagerly() else 'graph'}")
        return inner(*args, **kwargs)

    setattr(thing, name, spy)


def train_step() -> None:
    """Model.train_step: `fit` calls the one of the instance."""
    calls: list[str] = []
    model = small()
    spied(model, "train_step", calls)
    model.fit(X, Y, batch_size=4, verbose=0)
    assert set(calls) == {"train_step graph"}


def test_step() -> None:
    """Model.test_step: `evaluate` calls the one of the instance."""
    calls: list[str] = []
    model = small()
    spied(model, "test_step", calls)
    model.evaluate(X, Y, verbose=0)
    assert set(calls) == {"test_step graph"}


def apply() -> None:
    """Optimizer.apply: a training step calls the one of the instance, once, with all gradients."""
    calls: list[str] = []
    model = small()
    spied(model.optimizer, "apply", calls)
    model.fit(X, Y, batch_size=8, verbose=0)
    assert calls == ["apply graph"]


def get_metrics_result() -> None:
    """Model.get_metrics_result: called in each step, and outside of the graph at the end of epoch and evaluation."""
    calls: list[str] = []
    model = small()
    spied(model, "get_metrics_result", calls)
    model.fit(X, Y, batch_size=8, verbose=0)
    model.evaluate(X, Y, verbose=0)
    name = "get_metrics_result"
    assert calls == [f"{name} graph", f"{name} eager", f"{name} graph", f"{name} eager"]


def stateless_scope() -> None:
    """keras.StatelessScope: a metric's result is computed from the mapped state."""
    mean = keras.metrics.Mean()
    with keras.StatelessScope(state_mapping=[(mean.total, tf.constant(6.0)), (mean.count, tf.constant(2.0))]):
        assert float(mean.result()) == 3.0


def compile_again() -> None:
    """Model.compile: the one of the instance is called, and what was traced is dropped."""
    model = small()
    model.fit(X, Y, verbose=0)
    model.compile("sgd", "mse")
    assert model.train_function is None
    assert model.test_function is None


def fit_arguments() -> None:
    """Model.fit: has the arguments that are changed for each rank."""
    assert {"callbacks", "initial_epoch", "verbose", "epochs", "x"} <= set(
        inspect.signature(small().fit).parameters
    )


def stop_training() -> None:
    """Model.stop_training: looked at after the last callback of a step, and after that of an epoch."""

    class Stop(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.stop_training = True

    class Undo(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.model.stop_training = batch == 1

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.stop_training = epoch == 1

    model = small()
    history = model.fit(X, Y, batch_size=2, epochs=5, verbose=0, callbacks=[Stop(), Undo()])
    assert int(model.optimizer.iterations) == 4
    assert history.epoch == [0, 1]


def backup() -> None:
    """BackupAndRestore: restores before the first epoch begins, and decides which that is."""

    class Crash(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 2:
                raise InterruptedError

    with tempfile.TemporaryDirectory() as folder:
        with contextlib.suppress(InterruptedError):
            small().fit(
                X, Y, epochs=4, verbose=0, callbacks=[keras.callbacks.BackupAndRestore(folder), Crash()]
            )
        history = small().fit(X, Y, epochs=4, verbose=0, callbacks=[keras.callbacks.BackupAndRestore(folder)])
        assert history.epoch == [2, 3]


def jit() -> None:
    """Model.jit_compile: can be switched off after compile, and the saved model still has the user's choice."""
    model = small(jit_compile=True)
    model.jit_compile = False
    model.fit(X, Y, verbose=0)
    assert model.jit_compile is False
    assert model.get_compile_config()["jit_compile"] is True


def loss_reduction() -> None:
    """Loss.reduction: the mean over rows has the names that are let in."""
    assert keras.losses.MeanSquaredError().reduction in ("sum_over_batch_size", "mean")


def mean_state() -> None:
    """metrics.Mean: keeps `total` and `count`."""
    mean = keras.metrics.Mean()
    mean.update_state([1.0, 3.0])
    assert (float(mean.total), float(mean.count)) == (4.0, 2.0)


def loss_weighting() -> None:
    """Model.train_step: the loss is the mean over rows, and its tracker counts rows."""
    model = small()
    model.fit(X, Y, batch_size=8, verbose=0)
    assert float(model.metrics[0].count) == 8.0


def seeds() -> None:
    """Model.variables: the weights and, beyond them, the seeds."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1), keras.layers.Dropout(0.5)])
    weights = {id(variable) for variable in model.weights}
    (state,) = [variable for variable in model.variables if id(variable) not in weights]
    assert state.shape == (2,)


def first_batch() -> None:
    """Model.make_train_function: `fit` calls the one of the instance, and what it sets is called with iterators."""
    seen: list[Any] = []
    model = small()
    inner = model.make_train_function

    def make(force: bool = False) -> None:
        inner(force=force)
        function = model.train_function
        model.train_function = lambda iterator: (seen.append(iterator), function(iterator))[1]

    model.make_train_function = make
    model.fit(X, Y, batch_size=4, verbose=0)
    assert len(seen) == 2
    assert all(isinstance(each, tf.data.Iterator) for each in seen)


def added_losses() -> None:
    """Model.losses: in inference inside a StatelessScope, regularizers last, and no variable is written."""
    layer = keras.layers.Dense(1, kernel_regularizer="l2", activity_regularizer="l1")
    model = keras.Sequential([keras.Input((3,)), layer])
    mapping = [(weight, weight.value) for weight in model.trainable_variables]
    with keras.StatelessScope(state_mapping=mapping, collect_losses=True):
        model(X, training=False)
        assert len(model.losses) == 2


def weights_of_outputs() -> None:
    """Model.compute_loss: sample weights in the structure of the outputs scale the loss of each."""
    inputs = keras.Input((3,))
    model = keras.Model(inputs, {name: keras.layers.Dense(1, name=name)(inputs) for name in ("a", "b")})
    model.compile("sgd", {"a": "mse", "b": "mse"})
    y, predicted = {"a": Y, "b": Y}, model(X)

    def loss(weights: Any) -> float:
        return float(model.compute_loss(x=X, y=y, y_pred=predicted, sample_weight=weights))

    alone = loss({"a": None, "b": 0.0}), loss({"a": 0.0, "b": None})
    np.testing.assert_allclose(sum(alone), loss(None), rtol=1e-5)
    np.testing.assert_allclose(loss({"a": None, "b": tf.constant(3.0)}), alone[0] + 3 * alone[1], rtol=1e-5)


def masks() -> None:
    """_keras_mask: the mask of an output, by which its loss is a mean over unmasked steps."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Embedding(3, 2, mask_zero=True)])
    assert np.asarray(model(np.array([[1, 0]]))._keras_mask).tolist() == [[True, False]]


def synchronized() -> None:
    """BatchNormalization._moments: a training call takes mean and variance from the one of the instance."""
    from emberflow.strategies.data_parallel.shared_statistics import HOOKED

    layer = keras.layers.BatchNormalization(momentum=0.0, synchronized=True)
    assert layer.synchronized is True
    layer.build((None, 3))
    setattr(layer, HOOKED, lambda _inputs, _mask: (tf.fill([3], 2.0), tf.fill([3], 5.0)))
    layer(X, training=False)
    assert np.asarray(layer.moving_mean).tolist() == [0.0] * 3
    layer(X, training=True)
    assert np.asarray(layer.moving_mean).tolist() == [2.0] * 3
    assert np.asarray(layer.moving_variance).tolist() == [5.0] * 3


def paths_of_callbacks() -> None:
    """Callbacks that write: their paths are attributes, and URLs are taken as they are."""
    from emberflow._node.mirrored_callbacks import PATHS

    made = [
        keras.callbacks.ModelCheckpoint("s3://b/x.keras"),
        keras.callbacks.BackupAndRestore("s3://b/x.keras"),
        keras.callbacks.CSVLogger("s3://b/x.keras"),
        keras.callbacks.TensorBoard("s3://b/x.keras"),
    ]
    assert [getattr(each, PATHS[type(each)]) for each in made] == ["s3://b/x.keras"] * 4


def backup_files() -> None:
    """BackupAndRestore: all that it reads, writes and deletes begins with an attribute of text."""
    callback = keras.callbacks.BackupAndRestore("s3://b/backup")
    with tempfile.TemporaryDirectory() as folder:
        for name, value in vars(callback).items():
            if isinstance(value, str) and value.startswith("s3://b/backup"):
                setattr(callback, name, value.replace("s3://b/backup", folder))
        callback.delete_checkpoint = False
        small().fit(X, Y, epochs=2, verbose=0, callbacks=[callback])
        assert small().fit(X, Y, epochs=3, verbose=0, callbacks=[callback]).epoch == [2]


def summary_writers() -> None:
    """TensorBoard._writers: the event writers by name; flushed, an event is in its file."""
    from emberflow._node.mirrored_callbacks import SUMMARY_WRITERS

    class Flush(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            for writer in getattr(board, SUMMARY_WRITERS).values():
                writer.flush()
            sizes.append(sum(path.stat().st_size for path in Path(folder).rglob("*tfevents*")))

    sizes: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        board = keras.callbacks.TensorBoard(folder)
        small().fit(X, Y, epochs=3, verbose=0, callbacks=[board, Flush()])
    assert 0 < sizes[0] < sizes[1] < sizes[2]


def steps_between_saves() -> None:
    """save_freq: a whole number where a callback saves between the ends of epochs."""
    assert keras.callbacks.ModelCheckpoint("x.keras", save_freq=3).save_freq == 3
    assert keras.callbacks.BackupAndRestore("x", save_freq=3).save_freq == 3


PROMISES: list[Callable[[], None]] = [
    train_step, test_step, apply, get_metrics_result, stateless_scope, compile_again, fit_arguments, stop_training,
    backup, jit, loss_reduction, mean_state, loss_weighting, seeds, first_batch, added_losses, weights_of_outputs,
    masks, synchronized, paths_of_callbacks, backup_files, summary_writers, steps_between_saves,
]  # fmt: skip


def broken_promises() -> list[str]:
    """Name the promises that the installed Keras does not keep, with what was seen instead."""
    broken = []
    for promise in PROMISES:
        try:
            promise()
        except Exception as error:
            broken.append(f"{promise.__doc__} (keras {keras.__version__}: {error!r})")
    return broken
