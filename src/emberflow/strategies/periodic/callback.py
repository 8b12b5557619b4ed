"""Periodic averaging of a Keras model: a callback for plain `fit`, on each worker."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from emberflow.errors import ModelError
from emberflow.strategies.periodic.client import PeriodicClient
from emberflow.strategies.periodic.combiners import Combiner
from emberflow.strategies.periodic.schedule import Meeting, Report
from emberflow.strategies.transport.interface import Array

Place = Callable[[int], Any]


class Periodic(keras.callbacks.Callback):  # type: ignore[misc]
    """Meets the parameter server every so many steps; made by ``ctx.periodic``.

    All float weights meet; the optimizer's own variables stay with the worker.

    Attributes:
        place: Says where in its rows the worker stands after so many steps, for checkpoints.
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
        self._done = 0  # steps of the running epoch
        trained = {id(variable) for variable in model.trainable_variables}
        self._variables = [each for each in model.weights if "float" in each.dtype]
        self._meeting = Meeting(
            client,
            self._read,
            self._write,
            interval=interval,
            combiner=combiner,
            are_statistics=[id(variable) not in trained for variable in self._variables],
            report=report,
        )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Count the epoch's steps from none."""
        self._done = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Count steps, of which one execution may hold several."""
        before, self._done = self._done, batch + 1
        self._meeting.step(self._done - before, self._where)

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002
        """Push what was trained since the last meeting."""
        self.meet()

    def meet(self) -> None:
        """Meet the server now, if anything was trained since the last time."""
        self._meeting.meet(self._where)

    def finish(self) -> list[int]:
        """End the meetings of this worker. The chief waits for all others, and has their learning afterwards.

        Returns:
            On the chief, the ranks of workers that were lost on the way; elsewhere nothing.
        """
        return self._meeting.finish(self._where, waits=self._rank == 0)

    def centre(self) -> tuple[list[tuple[Any, Array]], dict[str, Any]]:
        """Return the server's values by variable, and the place of each worker; changes nothing here."""
        values, places = self._meeting.centre()
        return list(zip(self._variables, values, strict=True)), places

    def _where(self) -> Any:
        return self.place(self._meeting.steps) if self.place else None

    def _read(self) -> list[Array]:
        return [np.asarray(variable.numpy()) for variable in self._variables]

    def _write(self, values: Sequence[Array]) -> None:
        for variable, value in zip(self._variables, values, strict=True):
            variable.assign(value)
