"""Periodic averaging of a Keras model: a callback for plain `fit`, on each worker."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from emberflow.errors import ModelError
from emberflow.strategies.periodic.client import PeriodicClient
from emberflow.strategies.periodic.combiners import Combiner
from emberflow.strategies.periodic.schedule import Report, SyncSchedule
from emberflow.strategies.transport.interface import Array

Place = Callable[[int], Any]


class PeriodicAveraging(keras.callbacks.Callback):  # type: ignore[misc]
    """Averages with the parameter servers every so many steps; created by ``ctx.periodic``.

    All float weights are averaged; each worker keeps its own optimizer variables.

    Attributes:
        place: Returns where the worker is in its rows after so many steps, for checkpoints.
    """

    def __init__(
        self, model: Any, client: PeriodicClient, interval: int, combiner: Combiner, report: Report
    ) -> None:
        super().__init__()
        if not model.built:
            raise ModelError(
                f"Periodic averaging needs a built model. Received: model={model.name!r} without weights.",
                fix="Give the model an Input layer, or call model.build(shape).",
            )
        self.place: Place | None = None
        self._rank = client.rank
        self._done = 0  # steps of the current epoch
        trained = {id(variable) for variable in model.trainable_variables}
        self._variables = [each for each in model.weights if "float" in each.dtype]
        self._schedule = SyncSchedule(
            client,
            self._read,
            self._write,
            interval=interval,
            combiner=combiner,
            are_statistics=[id(variable) not in trained for variable in self._variables],
            report=report,
        )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Count the epoch's steps from 0."""
        self._done = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Count steps, of which one execution may hold several."""
        before, self._done = self._done, batch + 1
        self._schedule.step(self._done - before, self._where)

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002
        """Push what was trained since the last exchange."""
        self.sync()

    def sync(self) -> None:
        """Exchange with the servers now, if anything was trained since the last time."""
        self._schedule.sync(self._where)

    def finish(self) -> list[int]:
        """End the exchanges of this worker. The chief waits for all others, and then has the final values.

        Returns:
            On the chief, the ranks of workers that were lost; elsewhere an empty list.
        """
        return self._schedule.finish(self._where, waits=self._rank == 0)

    def server_values(self) -> tuple[list[tuple[Any, Array]], dict[str, Any]]:
        """Return the servers' values by variable, and the place of each worker; changes nothing here."""
        values, places = self._schedule.server_values()
        return list(zip(self._variables, values, strict=True)), places

    def _where(self) -> Any:
        return self.place(self._schedule.steps) if self.place else None

    def _read(self) -> list[Array]:
        return [np.asarray(variable.numpy()) for variable in self._variables]

    def _write(self, values: Sequence[Array]) -> None:
        for variable, value in zip(self._variables, values, strict=True):
            variable.assign(value)
