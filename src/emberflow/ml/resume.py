"""Checkpoints during the training, and starting from one at the exact row."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from emberflow._feed.position import Position
from emberflow.strategies.data_parallel.moving_statistics import Statistics, gather_statistics, set_statistics

if TYPE_CHECKING:
    from emberflow._node.context import Context

VARIABLES = "variables.npz"
STATE = "state.json"


class SaveCheckpoints(keras.callbacks.Callback):  # type: ignore[misc]
    """Saves variables, the position in the data and the history: every `steps` steps, and after each epoch.

    It runs on all ranks: each has its own moving statistics until the epoch ends, and they are gathered to be saved.
    """

    def __init__(self, ctx: "Context", steps: int, history: dict[str, list[float]]) -> None:
        super().__init__()
        self._ctx = ctx
        self._every = steps
        self._history = history
        self._steps = 0  # trained in this attempt, before the running epoch
        self._in_epoch = 0
        self._epoch = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Start the count of this epoch's steps."""
        self._epoch = epoch
        self._in_epoch = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Save if `steps` steps have passed since the last save."""
        before, self._in_epoch = self._in_epoch, batch + 1
        if self._every and (self._steps + before) // self._every < (self._steps + batch + 1) // self._every:
            self._save(self._epoch)

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Save with the position of the next epoch's first row."""
        self._steps += self._in_epoch
        self._in_epoch = 0
        for name, value in (logs or {}).items():
            self._history.setdefault(name, []).append(float(value))
        self._save(epoch + 1)

    def _save(self, epoch: int) -> None:
        position = self._ctx.position(steps=self._steps + self._in_epoch)
        arrays: dict[Any, Any] = dict(arrays_of(self.model))
        if statistics := gather_statistics(self.model):
            arrays |= statistics.mean() | statistics.to_arrays()
        self._write(epoch, arrays, {"position": position.to_json()})

    def _write(self, epoch: int, arrays: dict[Any, Any], position: dict[str, Any]) -> None:
        state = {"epoch": epoch, "history": self._history, **position}

        def write(folder: Path) -> None:
            np.savez(folder / VARIABLES, **{str(number): array for number, array in arrays.items()})
            (folder / STATE).write_text(json.dumps(state))

        self._ctx.save_checkpoint(write, step=int(self.model.optimizer.iterations.numpy()))


class ResumePoint:
    """Where training begins: at the first row, or at the checkpoint of an earlier attempt.

    Attributes:
        epoch: The first epoch.
        position: The position in the data, or None for the beginning.
        history: What earlier attempts logged.
        statistics: Each rank's moving statistics, if the checkpoint is from within an epoch.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self.statistics = _read_statistics(folder)
        state = read_state(folder)
        self.epoch: int = state.get("epoch", 0)
        self.position = Position.from_json(state["position"]) if state else None
        self.history: dict[str, list[float]] = state.get("history", {})

    @property
    def is_resumed(self) -> bool:
        """Whether there is a checkpoint."""
        return self._folder is not None

    def restore(self, model: Any) -> None:
        """Assign the saved variables to a built, compiled model."""
        restore_variables(model, self._folder)


class RestoreStatistics(keras.callbacks.Callback):  # type: ignore[misc]
    """Restores this rank's own moving statistics, after `fit` has sent the chief's weights to all ranks."""

    def __init__(self, statistics: Statistics) -> None:
        super().__init__()
        self._statistics: Statistics | None = statistics

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Restore them once: only the first `fit` continues within an epoch."""
        if self._statistics is not None:
            set_statistics(self.model, self._statistics)
        self._statistics = None


def _read_statistics(folder: Path | None) -> Statistics | None:
    if folder is None:
        return None
    with np.load(folder / VARIABLES) as saved:
        return Statistics.from_arrays(saved)


def read_state(folder: Path | None) -> dict[str, Any]:
    """Return the state saved with the variables; empty without a checkpoint."""
    return json.loads((folder / STATE).read_text()) if folder else {}


def restore_variables(model: Any, folder: Path | None) -> None:
    """Assign the variables of a checkpoint, if there is one, to a built, compiled model."""
    if folder is None:
        return
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    with np.load(folder / VARIABLES) as saved:
        for number, variable in enumerate(variables_of(model)):
            variable.assign(saved[str(number)])


def write_variables(model: Any, folder: Path) -> None:
    """Write the variables of a model for `restore_variables`."""
    np.savez(folder / VARIABLES, **{str(number): array for number, array in arrays_of(model).items()})


def variables_of(model: Any) -> list[Any]:
    """Return the variables of a checkpoint, in its order."""
    return [*model.variables, *model.optimizer.variables]


def arrays_of(model: Any) -> dict[int, Any]:
    """Return the values of the variables of a checkpoint, by their number in it."""
    return {number: np.asarray(variable.numpy()) for number, variable in enumerate(variables_of(model))}
