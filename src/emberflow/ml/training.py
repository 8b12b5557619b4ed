"""What each node runs for the estimator: build, distribute, fit."""

import pickle
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emberflow.errors import ModelError
from emberflow.ml.answers import Answer, answer_of
from emberflow.ml.inputs import (
    Columns,
    dataset_options,
    is_side_by_side,
    put_side_by_side,
    tensors_of,
)

if TYPE_CHECKING:
    from emberflow._node.context import Context


@dataclass(frozen=True, kw_only=True)
class Training:
    """All that the nodes are told.

    Attributes:
        keras_file: A compiled model as the bytes of a ``.keras`` file; or
        builder: a function that builds one, pickled.
        compiling: Loss, optimizer and metrics to use instead of the model's own, as Keras serialises them.
        callbacks: Keras callbacks, pickled.
        columns: Which columns go where.
        has_validation: Whether there is data to validate on.
        strategy: What the workers do together.
        sync_interval: Steps between two meetings, for "periodic".
        combiner: How a server merges the update of a worker, for "periodic".
        tensorboard: Folder for event files, or None.
    """

    keras_file: bytes | None = field(default=None, repr=False)
    builder: bytes | None = field(default=None, repr=False)
    compiling: dict[str, Any] = field(default_factory=dict)
    callbacks: bytes = field(default=b"", repr=False)
    columns: Columns
    batch_size: int
    epochs: int
    shuffle: bool
    seed: int
    has_validation: bool
    checkpoint_steps: int
    strategy: str = "data_parallel"
    sync_interval: int = 100
    combiner: Any = "delta"
    tensorboard: str | None = None


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What the chief brings back.

    Attributes:
        keras_file: The trained model as the bytes of a ``.keras`` file.
        history: Per epoch, what Keras logged.
        answers: What its outputs mean.
    """

    keras_file: bytes = field(repr=False)
    history: dict[str, list[float]]
    answers: tuple[Answer, ...]


@dataclass(frozen=True)
class TrainFunction:
    """What `ef.run` is given: a function that tells how large its value will be at least."""

    training: Training

    @property
    def least_value_bytes(self) -> int:
        """The size of the model before training; a trained one has its optimizer's variables as well."""
        return len(self.training.keras_file or b"")

    def __call__(self, ctx: "Context") -> Trained | None:
        """Train on this node."""
        return train(self.training, ctx)


def train(training: Training, ctx: "Context") -> Trained | None:
    """Train on this node together with the others; the chief returns the model."""
    from emberflow.ml.trainers import TRAINERS  # imports Keras

    return TRAINERS[training.strategy](training, ctx)


def train_in_step(training: Training, ctx: "Context") -> Trained | None:
    """Train synchronously: every worker takes the same steps."""
    import keras

    from emberflow.ml.progress import ReportProgress
    from emberflow.ml.resume import RestoreStatistics, SaveCheckpoints, Start

    keras.utils.set_random_seed(training.seed)
    model = make_model(training)
    start = Start(Path(found) if ctx.checkpoint_dir and (found := ctx.latest_checkpoint()) else None)
    dataset = make_dataset(ctx, model, training, "train", start.position)
    if start.is_resumed:
        build_from(model, dataset)
        start.restore(model)
    # A model that comes from a checkpoint brings its own seeds: they stand where the last attempt left them.
    model = ctx.distribute(model, seed=None if start.is_resumed else training.seed)
    callbacks = callbacks_of(training)
    if ctx.is_chief:
        callbacks.append(ReportProgress(ctx, training.epochs, steps=int(dataset.cardinality().numpy())))
    history = dict(start.history)
    if start.statistics is not None:
        callbacks.append(RestoreStatistics(start.statistics))
    if ctx.checkpoint_dir:
        callbacks.append(SaveCheckpoints(ctx, training.checkpoint_steps, history))
    validation = make_dataset(ctx, model, training, "validation", None) if training.has_validation else None
    logged = fit_from(
        ctx, model, dataset, start.epoch, training.epochs, validation_data=validation, callbacks=callbacks
    )
    if not ctx.is_chief:
        return None
    return trained_of(model, history if ctx.checkpoint_dir else logged)


def callbacks_of(training: Training) -> list[Any]:
    """Return the user's callbacks, new ones in each node, and one that writes event files if none does."""
    import keras

    callbacks = list(pickle.loads(training.callbacks)) if training.callbacks else []
    if training.tensorboard and not any(isinstance(each, keras.callbacks.TensorBoard) for each in callbacks):
        callbacks.append(keras.callbacks.TensorBoard(training.tensorboard, write_graph=False))
    return callbacks


def trained_of(model: Any, history: dict[str, list[Any]]) -> Trained:
    """Return what the chief brings back of a model."""
    return Trained(
        keras_file=file_of(model),
        history={name: [float(value) for value in values] for name, values in history.items()},
        answers=_answers(model),
    )


def fit_from(
    ctx: "Context", model: Any, dataset: Any, epoch: int, epochs: int, **options: Any
) -> dict[str, Any]:
    """Fit from this epoch on; the rest of an epoch that was broken off is a call of its own.

    Keras would notice the end of a short epoch only by asking for one batch too many, and that call counts as an
    iteration of the optimizer: the weights would not be those of an unbroken run.
    """
    place = ctx.position(steps=0)
    options |= {"shuffle": False, "verbose": 0}  # the dataset shuffles
    if place.step:
        rest = dataset.take(place.steps - place.step)
        model.fit(rest, initial_epoch=epoch, epochs=epoch + 1, **options)
        epoch += 1
        if model.stop_training:
            return {}
    return dict(model.fit(dataset, initial_epoch=epoch, epochs=epochs, **options).history)


def make_model(training: Training) -> Any:
    """Return the compiled model that the user gave or whose building they described."""
    import keras

    model = pickle.loads(training.builder)() if training.builder else model_of(training.keras_file or b"")
    if not isinstance(model, keras.Model):
        raise ModelError(
            f"The function given as `model` must return a Keras model. Received: {type(model).__name__}.",
            fix="Return the model that you compiled.",
        )
    changed = {name: _deserialised(value) for name, value in training.compiling.items()}
    if changed:
        own = {"optimizer": model.optimizer, "loss": model.loss} if model.compiled else {}
        model.compile(**{**own, **changed})
    if not model.compiled:
        raise ModelError(
            "The model must be compiled. Received: a model without optimizer and loss.",
            fix="Call model.compile(...), or pass optimizer= and loss= to KerasEstimator.",
        )
    return model


def model_of(keras_file: bytes) -> Any:
    """Return the model in the bytes of a ``.keras`` file; Keras' safe mode keeps code in it from running."""
    import keras

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        path.write_bytes(keras_file)
        return keras.saving.load_model(path, safe_mode=True)


def file_of(model: Any) -> bytes:
    """Return a model as the bytes of a ``.keras`` file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        model.save(path)
        return path.read_bytes()


def make_dataset(ctx: "Context", model: Any, training: Training, name: str, start_at: Any) -> Any:
    """Return this node's rows of this name, laid out as the model takes them."""
    dataset = ctx.dataset(
        name,
        batch_size=training.batch_size,
        shuffle=training.shuffle and name == "train",
        seed=training.seed,
        start_at=start_at,
        **dataset_options(model, training.columns),
    )
    return (
        put_side_by_side(dataset, training.columns) if is_side_by_side(model, training.columns) else dataset
    )


def build_from(model: Any, dataset: Any) -> None:
    """Build a model that learns its shapes from the first batch, without using up a row."""
    if model.built:
        return
    import tensorflow as tf

    features = dataset.element_spec[0]
    model(tf.nest.map_structure(lambda spec: tf.zeros([1, *spec.shape[1:]], spec.dtype), features))


def _answers(model: Any) -> tuple[Answer, ...]:
    outputs = tensors_of(model)[1]
    losses = model.loss
    if isinstance(losses, dict):
        losses = [losses.get(tensor.name) for tensor in outputs]
    elif not isinstance(losses, list | tuple):
        losses = [losses] * len(outputs)
    return tuple(
        answer_of(loss, tensor.name, tensor.shape[-1] if tensor.shape else None)
        for loss, tensor in zip(losses, outputs, strict=True)
    )


def _deserialised(value: Any) -> Any:
    import keras

    if isinstance(value, dict):
        return keras.saving.deserialize_keras_object(value)
    return [_deserialised(each) for each in value] if isinstance(value, list) else value
