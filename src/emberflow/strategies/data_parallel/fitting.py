"""`fit` and `evaluate` on many ranks: which callbacks run on which rank, the first epoch, and when all ranks stop."""

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

import tensorflow as tf
from emberflow.errors import PeerError
from emberflow.strategies.data_parallel.broadcast import broadcast_model, broadcast_optimizer
from emberflow.strategies.data_parallel.replica import Replica
from emberflow.strategies.transport.interface import Transport
from emberflow.strategies.transport.nccl_errors import nccl_error

# These only write files or send to servers: one rank is enough.
CHIEF_ONLY = (
    keras.callbacks.BackupAndRestore,
    keras.callbacks.CSVLogger,
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.RemoteMonitor,
    keras.callbacks.TensorBoard,
)
_BATCH_METHODS = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")
_LOST = (tf.errors.UnavailableError, tf.errors.DeadlineExceededError, tf.errors.AbortedError)


def hook_fit(replica: Replica) -> None:
    """Wrap the methods that a user calls."""
    model = replica.model
    inner_fit = model.fit

    def fit(*args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(inner_fit).bind(*args, **kwargs)
        if isinstance(given.arguments.get("x"), tf.data.Dataset):
            given.arguments.setdefault("shuffle", False)  # Keras warns of its own default
        given.apply_defaults()
        with peer_errors(replica.transport):
            _align_arguments(replica, inner_fit, given.arguments)
            return inner_fit(*given.args, **given.kwargs)

    fit.transport = replica.transport  # type: ignore[attr-defined] # marks the model as distributed
    fit.replica = replica  # type: ignore[attr-defined]
    model.fit = fit
    model.evaluate = _evaluate_of_all_ranks(replica, model.evaluate)
    for name in ("train_on_batch", "test_on_batch"):
        setattr(model, name, _with_peer_errors(replica, getattr(model, name)))


@contextlib.contextmanager
def peer_errors(transport: Transport) -> Iterator[None]:
    """Raise the transport's own error, which a graph replaces by one of TensorFlow's."""
    try:
        yield
    except tf.errors.OpError as error:
        if transport.failure is not None:
            raise transport.failure from error
        if refused := nccl_error(error.message):
            raise refused from error
        if isinstance(error, _LOST):
            raise PeerError(
                f"A rank did not answer during training. Received: {type(error).__name__}: {error.message}",
                "Look at the logs of the other ranks; the first to fail is the cause.",
            ) from error
        raise


def _with_peer_errors(replica: Replica, inner: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with peer_errors(replica.transport):
            return inner(*args, **kwargs)

    return call


def _evaluate_of_all_ranks(replica: Replica, inner: Callable[..., Any]) -> Callable[..., Any]:
    def evaluate(*args: Any, **kwargs: Any) -> Any:
        if not replica.is_chief and kwargs.get("verbose", "auto") == "auto":
            kwargs["verbose"] = 0
        with peer_errors(replica.transport):
            logs = inner(*args, **kwargs)
        # Without batches Keras returns no results; callbacks must see the same on all ranks.
        return {name: float(value) for name, value in replica.results.items()} if logs == {} else logs

    return evaluate


def _align_arguments(replica: Replica, inner_fit: Callable[..., Any], given: dict[str, Any]) -> None:
    """Change the arguments of `fit` so that all ranks start and stop at the same step."""
    callbacks = callback_list(given["callbacks"])
    mine = [each for each in callbacks if replica.is_chief or not isinstance(each, CHIEF_ONLY)]
    start = 0
    if replica.is_chief:
        start = _start_epoch(inner_fit, mine, given["initial_epoch"])
    elif given["verbose"] == "auto":
        given["verbose"] = 0
    stops_at_batch = any(_may_stop_at_a_batch(each) for each in mine)
    agreed = replica.transport.sum([tf.constant([start, int(stops_at_batch)], tf.int64)])[0]
    start, any_stops_at_batch = (int(number) for number in np.asarray(agreed))
    if replica.model.built and replica.model.variables:
        broadcast_model(replica)  # the chief may have restored a backup, or loaded weights
    broadcast_optimizer(replica)
    replica.stop_requested.assign(0.0)
    replica.stop_agreed.assign(0.0)
    kind = StopAtSameStep if any_stops_at_batch else StopAtEpochEnd
    given["initial_epoch"] = start
    given["callbacks"] = [*mine, kind(replica)]


class StopAtEpochEnd(keras.callbacks.Callback):  # type: ignore[misc]
    """Stops all ranks at the end of the epoch in which one requests it. The last of all callbacks."""

    def __init__(self, replica: Replica) -> None:
        super().__init__()
        self._replica = replica

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Note that moving statistics will change."""
        self._replica.has_trained = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Stop if any rank has requested it."""
        requested = float(self.model.stop_training) + self._replica.stop_requested
        (requests,) = self._replica.transport.sum([requested])
        self.model.stop_training = bool(requests > 0)


class StopAtSameStep(StopAtEpochEnd):
    """Stops all ranks at the same step, the one after that in which a rank requested it.

    The request is sent with the next gradients, and needs no exchange of its own.
    """

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Turn this rank's request into a flag, and a flag of any rank into a stop."""
        if bool(self._replica.stop_agreed > 0):
            self.model.stop_training = True
        elif self.model.stop_training:
            self.model.stop_training = False
            self._replica.stop_requested.assign(1.0)


class _StartEpochError(Exception):
    """Carries the first epoch out of `fit`."""


class _StartEpochProbe(keras.callbacks.Callback):  # type: ignore[misc]
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        raise _StartEpochError(epoch)


def _start_epoch(inner_fit: Callable[..., Any], callbacks: list[Any], initial_epoch: int) -> int:
    """Return the epoch that `fit` starts with: BackupAndRestore decides, inside of it, before the first epoch.

    So `fit` is started with these callbacks alone, and left before its first step. That restores the backup,
    and its epoch can be sent to the other ranks.
    """
    restorers = [each for each in callbacks if isinstance(each, keras.callbacks.BackupAndRestore)]
    try:
        inner_fit(
            x=np.zeros((1, 1)),
            epochs=sys.maxsize,
            initial_epoch=initial_epoch,
            verbose=0,
            callbacks=[*restorers, _StartEpochProbe()],
        )
    except _StartEpochError as started:
        return int(started.args[0])
    return initial_epoch


def callback_list(callbacks: Any) -> list[Any]:
    """Return what a user passes to `fit` as callbacks in a list."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return list(callbacks.callbacks)
    return list(keras.tree.flatten(callbacks)) if callbacks else []


def _may_stop_at_a_batch(callback: Any) -> bool:
    """Whether a callback may stop training in the middle of an epoch."""
    if type(callback) in CHIEF_ONLY or getattr(
        callback, "async_safe", False
    ):  # Keras may call these at any time
        return False
    return any(
        name in vars(callback) or getattr(type(callback), name) is not getattr(keras.callbacks.Callback, name)
        for name in _BATCH_METHODS
    )
