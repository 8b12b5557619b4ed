"""What each node runs for a model that keeps learning: a round per micro-batch, after which the model is stored."""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emberflow._score.model_versions import KERAS_FILE
from emberflow.ml.keras_saving import describe_trained
from emberflow.ml.training import Training, build_from, callbacks_of, make_dataset, make_model, trained_of

if TYPE_CHECKING:
    from emberflow._node.context import Context
    from emberflow._node.round_feed import Round

VERSION = "version"  # the folder of the exported model in a checkpoint, where one is to be published
TRAINED = "trained.json"
HISTORY = 1000  # rounds: a stream has no end, but memory has


@dataclass(frozen=True)
class LearnFunction:
    """The function that the nodes of `KerasEstimator.fitStream` run."""

    training: Training
    shown_options: Mapping[str, Any] = field(default_factory=dict)
    shown_name: str = "KerasEstimator.fitStream"

    def __call__(self, ctx: "Context") -> None:
        """Learn on this node until the stream ends."""
        learn(self.training, ctx)


def learn(training: Training, ctx: "Context") -> None:
    """Train on each round together with the other nodes; the chief stores the model after each."""
    import keras

    from emberflow.ml.resume import restore_variables

    keras.utils.set_random_seed(training.seed)
    model = make_model(training)
    callbacks: list[Any] | None = None
    history: dict[str, list[float]] = {}
    for rows in ctx.rounds():
        dataset = make_dataset(rows, model, training, "train", None)
        build_from(model, dataset)
        restore_variables(model, rows.checkpoint)
        if callbacks is None:
            seed = None if rows.checkpoint else training.seed
            ctx.distribute(model, seed=seed, exact=training.exact, wire_dtype=training.wire_dtype)
            callbacks = callbacks_of(training, ctx)
        logged = model.fit(dataset, shuffle=False, verbose=0, callbacks=callbacks).history
        for name, values in logged.items():
            history[name] = [*history.get(name, []), *(float(value) for value in values)][-HISTORY:]
        if ctx.is_chief:
            newest = {name: values[-1] for name, values in history.items()}
            ctx.report(step=int(model.optimizer.iterations.numpy()), **newest)
        rows.save_checkpoint(functools.partial(_write, rows, model, training, history))


def _write(
    rows: "Round", model: Any, training: Training, history: dict[str, list[float]], folder: Path
) -> None:
    """Write what the stream continues from, and the version that is to be published, if one is."""
    from emberflow.ml.resume import write_variables

    write_variables(model, folder)
    if rows.exports:
        trained = trained_of(rows, model, training, history)
        model.export(str(folder / VERSION), verbose=False)
        (folder / VERSION / KERAS_FILE).write_bytes(trained.keras_file)
        (folder / VERSION / TRAINED).write_text(json.dumps(describe_trained(trained)))
