"""What each node runs for the estimator: build, distribute, fit."""

import pickle
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emberflow._choices import WireDtype
from emberflow._feed.padding import PadTo
from emberflow.errors import ModelError
from emberflow.ml.exported_model import exported
from emberflow.ml.model_columns import (
    TrainingColumns,
    concatenate_features,
    dataset_options,
    is_concatenated,
    tensors_of,
)
from emberflow.ml.model_outputs import ModelOutput, losses_of, model_output_of
from emberflow.ml.padded_columns import columns_to_pad
from emberflow.ml.row_checks import check_rows

if TYPE_CHECKING:
    from emberflow._feed.file_source import FileSource
    from emberflow._node.context import Context
    from emberflow._node.round_feed import Round


@dataclass(frozen=True, kw_only=True)
class Training:
    """The description of a training that every node receives.

    Attributes:
        keras_file: A compiled model as the bytes of a ``.keras`` file, or None.
        builder: A pickled function that builds a model, or None.
        compiling: Loss, optimizer and metrics instead of the model's own, as Keras serialises them.
        callbacks: Pickled Keras callbacks.
        columns: The columns that are read.
        exact: Whether to refuse what would differ from one process, for "data_parallel".
        wire_dtype: As what gradients travel between hosts, for "data_parallel".
        has_validation: Whether there are rows to validate on.
        pad_to: The length to which arrays of any length are padded; "longest" or "batch".
        pad_value: What is added to them; None for 0 or an empty string.
        strategy: How the workers train together.
        sync_interval: Steps between two exchanges with the server, for "periodic".
        combiner: How a server merges the update of a worker, for "periodic".
        tensorboard: Folder for event files, or None.
        evaluation: Files that the evaluator evaluates checkpoints on; None without an evaluator.
    """

    keras_file: bytes | None = field(default=None, repr=False)
    builder: bytes | None = field(default=None, repr=False)
    compiling: dict[str, Any] = field(default_factory=dict)
    callbacks: bytes = field(default=b"", repr=False)
    columns: TrainingColumns
    batch_size: int
    epochs: int
    shuffle: bool
    seed: int
    exact: bool
    wire_dtype: WireDtype = "float32"
    has_validation: bool
    checkpoint_steps: int
    pad_to: PadTo = "longest"
    pad_value: Any = None
    strategy: str = "data_parallel"
    sync_interval: int = 100
    combiner: Any = "delta"
    tensorboard: str | None = None
    evaluation: "FileSource | None" = None


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What the chief returns.

    Attributes:
        keras_file: The trained model as the bytes of a ``.keras`` file.
        history: The metrics that Keras logged, one value per epoch.
        outputs: The meaning of its outputs.
        pad_to: By column, the length to which rows were padded.
        pad_value: What was added to them; None for 0 or an empty string.
        saved_model: The same model as a SavedModel, in the form of `exported`; empty if the chief has exported none.
    """

    keras_file: bytes = field(repr=False)
    history: dict[str, list[float]]
    outputs: tuple[ModelOutput, ...]
    pad_to: Mapping[str, int] = field(default_factory=dict)
    pad_value: Any = None
    saved_model: bytes = field(default=b"", repr=False)

    @property
    def shown_value(self) -> str:
        """What a record has of it: the metrics after the last epoch."""
        return "  ".join(f"{name} {values[-1]:.4g}" for name, values in self.history.items() if values)


@dataclass(frozen=True)
class TrainFunction:
    """The function that `ef.run` runs; it knows the least size of its value."""

    training: Training
    shown_options: Mapping[str, Any] = field(default_factory=dict)
    shown_name: str = "KerasEstimator"
    preload: tuple[str, ...] = ("tensorflow", "keras", "emberflow.ml.trainers")  # for `packages_used`

    @property
    def least_value_bytes(self) -> int:
        """The size of the model before training; the trained one has the optimizer's variables too."""
        return len(self.training.keras_file or b"")

    def __call__(self, ctx: "Context") -> "Trained | dict[str, float] | None":
        """Train on this node."""
        return train(self.training, ctx)


def train(training: Training, ctx: "Context") -> "Trained | dict[str, float] | None":
    """Train on this node together with the others; the chief returns the model, an evaluator its last metrics."""
    if ctx.role == "evaluator":
        from emberflow.ml.evaluation import evaluate_checkpoints

        return evaluate_checkpoints(training, ctx)
    from emberflow.ml.trainers import TRAINERS  # imports Keras

    return TRAINERS[training.strategy](training, ctx)


def train_in_step(training: Training, ctx: "Context") -> Trained | None:
    """Train synchronously: every worker takes the same steps."""
    import keras

    from emberflow.ml.progress_callback import ReportProgress
    from emberflow.ml.resume import RestoreStatistics, ResumePoint, SaveCheckpoints

    keras.utils.set_random_seed(training.seed)
    model = make_model(training)
    start = ResumePoint(Path(found) if ctx.checkpoint_dir and (found := ctx.latest_checkpoint()) else None)
    dataset = make_dataset(ctx, model, training, "train", start.position)
    if start.is_resumed:
        build_from(model, dataset)
        start.restore(model)
    # A model from a checkpoint has its own seeds, at the state in which the last attempt saved them.
    seed = None if start.is_resumed else training.seed
    model = ctx.distribute(model, seed=seed, exact=training.exact, wire_dtype=training.wire_dtype)
    callbacks = callbacks_of(training, ctx)
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
    return trained_of(ctx, model, training, history if ctx.checkpoint_dir else logged, exports=True)


def callbacks_of(training: Training, ctx: "Context") -> list[Any]:
    """Return the user's callbacks, new ones in each node, one that writes event files if none does, and our own."""
    import keras

    from emberflow.ml.loss_watch import WarnOfNanLoss

    callbacks = list(pickle.loads(training.callbacks)) if training.callbacks else []
    if training.tensorboard and not any(isinstance(each, keras.callbacks.TensorBoard) for each in callbacks):
        callbacks.append(keras.callbacks.TensorBoard(training.tensorboard, write_graph=False))
    return [*callbacks, WarnOfNanLoss(ctx, training.columns)]


def trained_of(
    ctx: "Context | Round",
    model: Any,
    training: Training,
    history: dict[str, list[Any]],
    *,
    exports: bool = False,
) -> Trained:
    """Return a trained model as the chief sends it back; `exports`: as a SavedModel too, for `KerasModel.save`."""
    padded = padding_of(ctx, model, training)
    keras_file = file_of(model)
    return Trained(
        keras_file=keras_file,
        saved_model=exported(model, len(keras_file)) if exports else b"",
        history={name: [float(value) for value in values] for name, values in history.items()},
        outputs=_outputs(model),
        pad_to={name: length for name, length in padded.items() if isinstance(length, int)},
        pad_value=training.pad_value,
    )


def padding_of(ctx: "Context | Round", model: Any, training: Training) -> dict[str, PadTo]:
    """Return the feature columns to pad, with their length: the same for training and validation rows."""
    names = ["train", *(["validation"] if training.has_validation else [])]
    shards = [ctx._shards(name) for name in names]  # noqa: SLF001 - internal to Emberflow
    return columns_to_pad(shards, training.columns, tensors_of(model)[0], training.pad_to)


def fit_from(
    ctx: "Context", model: Any, dataset: Any, epoch: int, epochs: int, **options: Any
) -> dict[str, Any]:
    """Fit from this epoch on; the rest of an interrupted epoch is a separate call of `fit`.

    Keras would notice the end of a short epoch only by requesting one batch too many, and that request counts as an
    iteration of the optimizer: the weights would differ from those of an uninterrupted run.
    """
    position = ctx.position(steps=0)
    options |= {"shuffle": False, "verbose": 0}  # the dataset shuffles
    if position.step:
        rest = dataset.take(position.steps - position.step)
        model.fit(rest, initial_epoch=epoch, epochs=epoch + 1, **options)
        epoch += 1
        if model.stop_training:
            return {}
    return dict(model.fit(dataset, initial_epoch=epoch, epochs=epochs, **options).history)


def make_model(training: Training) -> Any:
    """Return the user's compiled model, from its file or from the function that builds it."""
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
    """Return the model in the bytes of a ``.keras`` file; Keras' safe mode refuses code in it."""
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


def make_dataset(ctx: "Context | Round", model: Any, training: Training, name: str, start_at: Any) -> Any:
    """Return this node's rows of this name, in the structure of the model's inputs and outputs."""
    pad_to = padding_of(ctx, model, training)
    if ctx.is_chief and name == "train":
        for column, length in pad_to.items():
            print(f"column {column!r} has arrays of different lengths: padded to {length}", flush=True)  # noqa: T201
    check_rows(ctx, model, training.columns, name, padded=pad_to)
    dataset = ctx.dataset(
        name,
        batch_size=training.batch_size,
        shuffle=training.shuffle and name == "train",
        seed=training.seed,
        start_at=start_at,
        pad_to=pad_to,
        pad_value={} if training.pad_value is None else dict.fromkeys(pad_to, training.pad_value),
        **dataset_options(model, training.columns, pad_to),
    )
    return (
        concatenate_features(dataset, training.columns)
        if is_concatenated(model, training.columns)
        else dataset
    )


def build_from(model: Any, dataset: Any) -> None:
    """Build a model whose shapes follow from the first batch, without consuming a row."""
    if model.built:
        return
    import tensorflow as tf

    features = dataset.element_spec[0]
    model(tf.nest.map_structure(lambda spec: tf.zeros([1, *spec.shape[1:]], spec.dtype), features))


def _outputs(model: Any) -> tuple[ModelOutput, ...]:
    outputs = tensors_of(model)[1]
    losses = losses_of(model, [tensor.name for tensor in outputs])
    return tuple(
        model_output_of(loss, tensor.name, tensor.shape[-1] if tensor.shape else None)
        for loss, tensor in zip(losses, outputs, strict=True)
    )


def _deserialised(value: Any) -> Any:
    import keras

    if isinstance(value, dict):
        return keras.saving.deserialize_keras_object(value)
    return [_deserialised(each) for each in value] if isinstance(value, list) else value
