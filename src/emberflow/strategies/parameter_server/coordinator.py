"""Asynchronous training of a Keras model with its variables on parameter servers: `fit` without Keras' own.

The chief schedules steps: on the workers through TensorFlow's ClusterCoordinator, on itself in a thread. Each node
trains on its own rows, and then on those that slower nodes have left; an epoch ends when all rows were trained on.
Callbacks see the same as in `fit`.
"""

import functools
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import keras

import tensorflow as tf
from emberflow._plan import deadlines
from emberflow.config import EXCHANGE_TIMEOUT
from emberflow.strategies.parameter_server.remote_step import prepare, test_step_of, train_step_of
from emberflow.strategies.parameter_server.row_sources import RowSource
from emberflow.strategies.transport.timed_call import TimedCaller

STEPS_AHEAD = 4  # scheduled per worker, so that a slow worker does not make the others wait


class Coordinator:
    """Trains models on all nodes; on the chief. Created by ``ctx.coordinate``.

    Attributes:
        strategy: TensorFlow's ParameterServerStrategy; build and compile the model in its scope.
    """

    def __init__(
        self,
        strategy: Any,
        sources: dict[str, RowSource],
        workers: int,
        exchange_timeout: float = EXCHANGE_TIMEOUT,
    ) -> None:
        self.strategy = strategy
        # The task of a stopped worker ends it within one timeout, and TensorFlow repeats the step on another worker.
        self._step_timeout = 2 * exchange_timeout
        self._workers = f"a worker, one of ranks 1 to {workers - 1}, or of a ps"
        self._epoch = 0
        self._taken: dict[int, int] = {}
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        self._sources = sources
        self._ahead = STEPS_AHEAD * (workers - 1)
        self._evaluations = 0

    def rows(self, name: str) -> Any:
        """Return the chief's own dataset of this name."""
        return self._sources[name].dataset

    def places(self) -> dict[str, dict[str, int]]:
        """Return how many steps of the current epoch were made of each node's rows so far."""
        return {str(rank): {"epoch": self._epoch, "step": step} for rank, step in self._taken.items()}

    def scope(self) -> Any:
        """Return the scope in which variables are created on the parameter servers."""
        return self.strategy.scope()

    def fit(
        self,
        model: Any,
        *,
        epochs: int = 1,
        initial_epoch: int = 0,
        callbacks: Sequence[Any] | None = None,
        taken: Mapping[int, int] | None = None,
    ) -> Any:
        """Train a compiled model that was built in the scope; return Keras' History.

        Where there are rows to validate on they are evaluated after each epoch.

        Args:
            model: The model.
            epochs: The epoch to end before.
            initial_epoch: The epoch to begin with.
            callbacks: Keras callbacks; they run on the chief.
            taken: Steps of the initial epoch that each node had taken before, for `places`.
        """
        step = self._step(model, "train", train_step_of)
        calls = keras.callbacks.CallbackList(
            list(callbacks or ()), add_history=True, model=model, epochs=epochs, steps=None, verbose=0
        )
        model.stop_training = False
        calls.on_train_begin()
        logs: dict[str, Any] = {}
        for epoch in range(initial_epoch, epochs):
            model.reset_metrics()
            calls.on_epoch_begin(epoch)
            self._epoch, self._taken = epoch, dict(taken or {}) if epoch == initial_epoch else {}

            def on_step(batch: int, rank: int, logs: Any) -> None:
                self._taken[rank] = self._taken.get(rank, 0) + 1
                calls.on_train_batch_begin(batch)
                calls.on_train_batch_end(batch, _floats(logs))

            self._run_epoch(step, epoch, on_step, model)
            logs = _floats(model.get_metrics_result())
            if "validation" in self._sources:
                logs |= {f"val_{name}": value for name, value in self.evaluate(model).items()}
            calls.on_epoch_end(epoch, dict(logs))
            if model.stop_training:
                break
        calls.on_train_end(logs)
        return model.history

    def evaluate(self, model: Any, name: str = "validation") -> dict[str, float]:
        """Return the metrics of a compiled model over the rows of this name of all workers."""
        step = self._step(model, name, test_step_of)
        model.reset_metrics()
        self._evaluations += 1
        self._run_epoch(step, self._evaluations)
        return _floats(model.get_metrics_result())

    def _step(self, model: Any, name: str, make: Callable[..., Any]) -> Any:
        """Return the traced step; made once for each model, name and compilation."""
        key = (name, id(model.optimizer))
        made = vars(model).setdefault("_emberflow_steps", {})
        if key not in made:
            spec = self._sources[name].spec
            with self.strategy.scope():
                prepare(model, spec)
            made[key] = make(model, self.strategy, name, spec)
        return made[key]

    def _run_epoch(
        self, step: Any, epoch: int, on_step: Callable[[int, int, Any], None] | None = None, model: Any = None
    ) -> None:
        """Train on all rows of this epoch; `on_step` is called after each step, and may stop the model."""
        number = tf.constant(epoch, tf.int64)
        batch = 0
        with TimedCaller(self._step_timeout) as caller:
            for rank, rows, logs in self._results(step, number, caller):
                if rows and on_step is not None:
                    on_step(batch, rank, logs)
                    batch += 1
                if model is not None and model.stop_training:
                    break
            caller.call(self._coordinator.join, self._workers)  # for steps that are still scheduled

    def _results(self, step: Any, epoch: Any, caller: TimedCaller) -> Iterator[tuple[int, int, Any]]:
        """Yield the owner's rank, the rows and the logs of each finished step, until no node has rows left."""
        # Traced here, before the chief's own thread needs it.
        scheduled = deque([self._coordinator.schedule(step, args=(epoch,))])
        is_over = False
        with self._own_steps(step, epoch) as own:
            while scheduled or not is_over:
                while not is_over and len(scheduled) < self._ahead:
                    scheduled.append(self._coordinator.schedule(step, args=(epoch,)))
                oldest = functools.partial(_fetched, scheduled.popleft())
                fetched = caller.call(oldest, self._workers)
                if fetched is not None:
                    owner, rows, none_left, logs = fetched
                    is_over = is_over or bool(none_left)
                    if not none_left:
                        yield int(owner), int(rows), logs
                yield from own.ready()
            yield from own.rest()

    @contextmanager
    def _own_steps(self, step: Any, epoch: Any) -> "Iterator[_OwnSteps]":
        own = _OwnSteps(self.strategy, step, epoch)
        try:
            yield own
        finally:
            own.stop()


class _OwnSteps:
    """The chief's own steps, on a thread beside those of the workers."""

    def __init__(self, strategy: Any, step: Any, epoch: Any) -> None:
        self._strategy = strategy
        self._step = step
        self._epoch = epoch
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._is_over = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="emberflow-own-steps", daemon=True)
        self._thread.start()

    def ready(self) -> Iterator[tuple[int, int, Any]]:
        """Yield the steps that are done."""
        while not self._done.empty():
            yield from self._take()

    def rest(self) -> Iterator[tuple[int, int, Any]]:
        """Yield the remaining steps, waiting for each."""
        while not self._is_over:
            yield from self._take()

    def stop(self) -> None:
        """Start no further step."""
        self._stopped.set()
        self._thread.join(deadlines.LAST_STEP_TIMEOUT)

    def _take(self) -> Iterator[tuple[int, int, Any]]:
        item = self._done.get()
        if item is None:
            self._is_over = True
        elif isinstance(item, Exception):
            self._is_over = True
            raise item
        else:
            yield item

    def _run(self) -> None:
        try:
            # The chief's own device: these parts of the graph run in this process.
            with self._strategy.scope(), tf.device("/job:chief/replica:0/task:0"):
                while not self._stopped.is_set():
                    rank, rows, is_over, logs = self._step(self._epoch)
                    if is_over:
                        break
                    self._done.put((int(rank), int(rows), logs))
            self._done.put(None)
        except Exception as error:  # noqa: BLE001 - the thread that trains raises it
            self._done.put(error)


def _fetched(result: Any) -> Any:
    """Return the result of a step; None if its worker was lost after the step was done."""
    try:
        return result.fetch()
    except (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError) as error:
        if "/job:ps" in error.message or "/job:worker" not in error.message:
            raise
        return None


def _floats(logs: Any) -> dict[str, float]:
    return {name: float(value) for name, value in logs.items()}
