"""What each node runs for the estimator with an asynchronous strategy."""

import dataclasses
import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras

from emberflow.ml.progress_callback import ReportProgress
from emberflow.ml.resume import SaveCheckpoints, arrays_of, read_state, restore_variables, variables_of
from emberflow.ml.training import (
    Trained,
    Training,
    build_from,
    callbacks_of,
    fit_from,
    make_dataset,
    make_model,
    trained_of,
)
from emberflow.strategies.data_parallel.fitting import CHIEF_ONLY

if TYPE_CHECKING:
    from emberflow._node.context import Context
    from emberflow.strategies.parameter_server.coordinator import Coordinator
    from emberflow.strategies.periodic.callback import PeriodicAveraging

Place = dict[str, int]  # the epoch of one worker's own rows, and the steps done in it
Snapshot = Callable[[], tuple[dict[int, Any], dict[str, Place]]]


def train_periodically(training: Training, ctx: "Context") -> Trained | None:
    """Train on this worker's rows, and exchange values with the server periodically; the chief returns the model."""
    keras.utils.set_random_seed(training.seed)
    model = make_model(training)
    saved = SavedProgress(ctx, unsaved_epoch=0)
    dataset = _dataset_from(ctx, model, training, saved.place)
    build_from(model, dataset)
    saved.restore(model)
    averaging = ctx.periodic(model, interval=training.sync_interval, combiner=training.combiner)
    averaging.place = functools.partial(_place_after, ctx)
    callbacks = [
        each for each in callbacks_of(training, ctx) if ctx.is_chief or not isinstance(each, CHIEF_ONLY)
    ]
    callbacks.append(averaging)
    if ctx.is_chief and ctx.rows("train"):
        callbacks.append(ReportProgress(ctx, training.epochs, steps=int(dataset.cardinality().numpy())))
    history = dict(saved.history)
    if ctx.checkpoint_dir and ctx.is_chief:
        snapshot = functools.partial(_averaged_state, averaging, model)
        callbacks.append(SavePlaces(ctx, training.checkpoint_steps, history, snapshot))
    logged: dict[str, Any] = {}
    if ctx.rows("train") and saved.place["epoch"] < training.epochs:
        has_validation = training.has_validation and ctx.rows("validation")
        validation = make_dataset(ctx, model, training, "validation", None) if has_validation else None
        start = saved.place["epoch"]
        options = {"validation_data": validation, "callbacks": callbacks}
        logged = fit_from(ctx, model, dataset, start, training.epochs, **options)
    averaging.finish()
    if not ctx.is_chief:
        return None
    return trained_of(ctx, model, training, history if ctx.checkpoint_dir else logged, exports=True)


def train_on_servers(training: Training, ctx: "Context") -> Trained | None:
    """Train with the variables on parameter servers; the chief schedules steps, the other nodes run them."""
    saved = SavedProgress(ctx)
    made: list[Any] = []

    def rows(name: str) -> Any:
        if not made:  # the chief trains it; on other nodes it only determines the columns
            keras.utils.set_random_seed(training.seed)
            made.append(make_model(training))
        place = saved.place if name == "train" else None
        return _dataset_from(ctx, made[0], training, place, name)

    own_steps = max(-(-ctx.rows("train") // training.batch_size), 1)
    trainer = ctx.coordinate(
        functools.partial(rows, "train"),
        validation=functools.partial(rows, "validation") if training.has_validation else None,
        first_epoch=saved.place["epoch"] + saved.place["step"] // own_steps,
    )
    (model,) = made
    with trainer.scope():
        build_from(model, trainer.rows("train"))
        saved.restore(model)
    history = dict(saved.history)
    steps = own_steps * ctx.workers  # approximate: the others have about as many rows
    callbacks = [*callbacks_of(training, ctx), ReportProgress(ctx, training.epochs, steps=steps)]
    if ctx.checkpoint_dir:
        snapshot = functools.partial(_served, trainer, model)
        callbacks.append(SavePlaces(ctx, training.checkpoint_steps, history, snapshot))
    taken = {
        int(rank): place["step"] for rank, place in saved.places.items() if place["epoch"] == saved.epoch
    }
    logged = trainer.fit(
        model, initial_epoch=saved.epoch, epochs=training.epochs, callbacks=callbacks, taken=taken
    )
    return trained_of(ctx, model, training, history if ctx.checkpoint_dir else logged.history)


class SavedProgress:
    """What an earlier attempt saved, as this node resumes from it.

    Args:
        ctx: This node's context.
        unsaved_epoch: The epoch of a worker without saved progress; -1 for the chief's epoch.

    Attributes:
        epoch: The chief's epoch.
        places: The place of each worker in its rows, by rank.
        place: The place of this worker.
        history: The metrics that the chief logged.
    """

    def __init__(self, ctx: "Context", *, unsaved_epoch: int = -1) -> None:
        found = ctx.latest_checkpoint() if ctx.checkpoint_dir else None
        self._folder = Path(found) if found else None
        state = read_state(self._folder)
        self.epoch: int = state.get("epoch", 0)
        self.history: dict[str, list[float]] = state.get("history", {})
        if _are_same_rows(ctx, state) and state.get("workers", ctx.workers) == ctx.workers:
            self.places: dict[str, Place] = state.get("places", {})
        else:  # the rows are distributed again, so places have no meaning
            self.places = {str(rank): {"epoch": self.epoch, "step": 0} for rank in range(ctx.workers)}
        beginning = {"epoch": self.epoch if unsaved_epoch < 0 else unsaved_epoch, "step": 0}
        self.place: Place = self.places.get(str(ctx.rank), beginning)

    def restore(self, model: Any) -> None:
        """Assign the saved variables to a built, compiled model."""
        restore_variables(model, self._folder)


class SavePlaces(SaveCheckpoints):
    """Saves the servers' variables, and the place of each worker in its rows."""

    def __init__(
        self, ctx: "Context", steps: int, history: dict[str, list[float]], snapshot: Snapshot
    ) -> None:
        super().__init__(ctx, steps, history)
        self._snapshot = snapshot

    def _save(self, epoch: int) -> None:
        arrays, places = self._snapshot()
        contents = dataclasses.asdict(self._ctx._contents())  # noqa: SLF001 - internal to Emberflow
        self._write(epoch, arrays, {"places": places, "workers": self._ctx.workers, "contents": contents})


def _are_same_rows(ctx: "Context", state: dict[str, Any]) -> bool:
    """Tell whether the rows are those of the checkpoint: otherwise the workers' places have no meaning.

    Another number of workers divides the same rows differently; then only the number of rows can be compared. A
    restart has the same DataFrame, whose rows may arrive in another order: its epoch starts again, as in synchronous
    training. A new run with other rows is an error, because nothing else would reveal it.
    """
    saved = state.get("contents")
    if saved is None:
        return True
    now = ctx._contents()  # noqa: SLF001 - internal to Emberflow
    if now.digest == saved["digest"] if state["workers"] == ctx.workers else now.rows == saved["rows"]:
        return True
    error = now.changed_from(saved["rows"], saved["digest"])
    if not ctx.attempt:
        raise error
    text = f"{error.problem} Epoch {state['epoch']} starts again. {error.fix}"
    warnings.warn(text, UserWarning, stacklevel=2)
    return False


def _dataset_from(
    ctx: "Context", model: Any, training: Training, place: Place | None, name: str = "train"
) -> Any:
    """Return this worker's dataset from its place on."""
    dataset = make_dataset(ctx, model, training, name, None)
    if place is None or place == {"epoch": 0, "step": 0} or not ctx.rows(name):
        return dataset
    start = ctx.position(name, steps=0)
    over, step = divmod(place["step"], start.steps)
    start = dataclasses.replace(start, epoch=place["epoch"] + over, step=step)
    return make_dataset(ctx, model, training, name, start)


def _place_after(ctx: "Context", steps: int) -> Place:
    position = ctx.position(steps=steps)
    return {"epoch": position.epoch, "step": position.step}


def _averaged_state(averaging: "PeriodicAveraging", model: Any) -> tuple[dict[int, Any], dict[str, Place]]:
    """Return the server's values where it has them and the chief's own otherwise, and all places."""
    averaging.sync()  # otherwise the chief's steps since its last exchange would be missing
    values, places = averaging.server_values()
    averaged = {id(variable): value for variable, value in values}
    variables = enumerate(variables_of(model))
    served = {place: averaged[id(variable)] for place, variable in variables if id(variable) in averaged}
    return arrays_of(model) | served, places


def _served(trainer: "Coordinator", model: Any) -> tuple[dict[int, Any], dict[str, Place]]:
    return arrays_of(model), trainer.places()
