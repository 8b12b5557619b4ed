"""What each node runs for the estimator when workers go at their own pace."""

import dataclasses
import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras

from emberflow.ml.progress import ReportProgress
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
    from emberflow.strategies.periodic.callback import Periodic

Place = dict[str, int]  # epoch, and steps taken in it, of one worker's own rows
Snapshot = Callable[[], tuple[dict[int, Any], dict[str, Place]]]


def train_periodically(training: Training, ctx: "Context") -> Trained | None:
    """Train alone on this worker's rows, and meet the others at the server; the chief returns what came of it."""
    keras.utils.set_random_seed(training.seed)
    model = make_model(training)
    saved = Saved(ctx, unheard=0)
    dataset = _placed_dataset(ctx, model, training, saved.place)
    build_from(model, dataset)
    saved.restore(model)
    sync = ctx.periodic(model, interval=training.sync_interval, combiner=training.combiner)
    sync.place = functools.partial(_place_after, ctx)
    callbacks = [each for each in callbacks_of(training) if ctx.is_chief or not isinstance(each, CHIEF_ONLY)]
    callbacks.append(sync)
    if ctx.is_chief and ctx.rows("train"):
        callbacks.append(ReportProgress(ctx, training.epochs, steps=int(dataset.cardinality().numpy())))
    history = dict(saved.history)
    if ctx.checkpoint_dir and ctx.is_chief:
        snapshot = functools.partial(_centre_of, sync, model)
        callbacks.append(SavePlaces(ctx, training.checkpoint_steps, history, snapshot))
    logged: dict[str, Any] = {}
    if ctx.rows("train") and saved.place["epoch"] < training.epochs:
        has_validation = training.has_validation and ctx.rows("validation")
        validation = make_dataset(ctx, model, training, "validation", None) if has_validation else None
        start = saved.place["epoch"]
        options = {"validation_data": validation, "callbacks": callbacks}
        logged = fit_from(ctx, model, dataset, start, training.epochs, **options)
    sync.finish()
    if not ctx.is_chief:
        return None
    return trained_of(model, history if ctx.checkpoint_dir else logged)


def train_on_servers(training: Training, ctx: "Context") -> Trained | None:
    """Train with the variables on parameter servers; the chief hands out steps, the others serve it."""
    saved = Saved(ctx)
    made: list[Any] = []

    def rows(name: str) -> Any:
        if not made:  # on the chief the one that is trained; elsewhere it only says which columns go where
            keras.utils.set_random_seed(training.seed)
            made.append(make_model(training))
        place = saved.place if name == "train" else None
        return _placed_dataset(ctx, made[0], training, place, name)

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
    steps = own_steps * ctx.workers  # about: the others have about as many rows
    callbacks = [*callbacks_of(training), ReportProgress(ctx, training.epochs, steps=steps)]
    if ctx.checkpoint_dir:
        snapshot = functools.partial(_served, trainer, model)
        callbacks.append(SavePlaces(ctx, training.checkpoint_steps, history, snapshot))
    taken = {
        int(rank): place["step"] for rank, place in saved.places.items() if place["epoch"] == saved.epoch
    }
    logged = trainer.fit(
        model, initial_epoch=saved.epoch, epochs=training.epochs, callbacks=callbacks, taken=taken
    )
    return trained_of(model, history if ctx.checkpoint_dir else logged.history)


class Saved:
    """What an earlier attempt saved, seen by this node.

    Args:
        ctx: This node's context.
        unheard: The epoch of a worker of which nothing was saved; -1 for the chief's.

    Attributes:
        epoch: The chief's epoch.
        places: Where each worker stood, by rank.
        place: Where this worker stands in its own rows.
        history: What the chief logged.
    """

    def __init__(self, ctx: "Context", *, unheard: int = -1) -> None:
        found = ctx.latest_checkpoint() if ctx.checkpoint_dir else None
        self._folder = Path(found) if found else None
        state = read_state(self._folder)
        self.epoch: int = state.get("epoch", 0)
        self.history: dict[str, list[float]] = state.get("history", {})
        if _are_same_rows(ctx, state) and state.get("workers", ctx.workers) == ctx.workers:
            self.places: dict[str, Place] = state.get("places", {})
        else:  # the rows are dealt anew, and places mean nothing
            self.places = {str(rank): {"epoch": self.epoch, "step": 0} for rank in range(ctx.workers)}
        beginning = {"epoch": self.epoch if unheard < 0 else unheard, "step": 0}
        self.place: Place = self.places.get(str(ctx.rank), beginning)

    def restore(self, model: Any) -> None:
        """Give a built, compiled model the variables that were saved."""
        restore_variables(model, self._folder)


class SavePlaces(SaveCheckpoints):
    """Saves the servers' variables, and where each worker stands in its rows."""

    def __init__(
        self, ctx: "Context", steps: int, history: dict[str, list[float]], snapshot: Snapshot
    ) -> None:
        super().__init__(ctx, steps, history)
        self._snapshot = snapshot

    def _save(self, epoch: int) -> None:
        arrays, places = self._snapshot()
        contents = dataclasses.asdict(self._ctx._contents())  # noqa: SLF001 - not for users
        self._write(epoch, arrays, {"places": places, "workers": self._ctx.workers, "contents": contents})


def _are_same_rows(ctx: "Context", state: dict[str, Any]) -> bool:
    """Tell whether the rows are those of the checkpoint: else the workers' places among them mean nothing.

    Another number of workers divides the same rows otherwise; then only their number can be compared. A restart has
    the same DataFrame, whose rows may come in another order: its epoch starts again, as in synchronous training.
    Another run has been given other data, which would go unnoticed.
    """
    saved = state.get("contents")
    if saved is None:
        return True
    now = ctx._contents()  # noqa: SLF001 - not for users
    if now.digest == saved["digest"] if state["workers"] == ctx.workers else now.rows == saved["rows"]:
        return True
    error = now.changed_from(saved["rows"], saved["digest"])
    if not ctx.attempt:
        raise error
    said = f"{error.problem} Epoch {state['epoch']} starts again. {error.fix}"
    warnings.warn(said, UserWarning, stacklevel=2)
    return False


def _placed_dataset(
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


def _centre_of(sync: "Periodic", model: Any) -> tuple[dict[int, Any], dict[str, Place]]:
    """Return the server's values where it has them and the chief's own elsewhere, and all places."""
    sync.meet()  # else what the chief has trained since its last meeting would be missing
    centre, places = sync.centre()
    averaged = {id(variable): value for variable, value in centre}
    variables = enumerate(variables_of(model))
    served = {place: averaged[id(variable)] for place, variable in variables if id(variable) in averaged}
    return arrays_of(model) | served, places


def _served(trainer: "Coordinator", model: Any) -> tuple[dict[int, Any], dict[str, Place]]:
    return arrays_of(model), trainer.places()
