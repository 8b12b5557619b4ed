"""The files of a saved KerasEstimator and KerasModel.

model.keras           the Keras model
saved_model/          the same model for serving, with its signature (KerasModel only)
builder.pickle        the function that builds the model: code, loaded only when trusted (KerasEstimator only)
callbacks.pickle      callbacks: the same
"""

import pickle
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from emberflow import storage
from emberflow._choices import one_of
from emberflow._driver.paths import resolve_path
from emberflow._score.model_versions import KERAS_FILE, newest_version
from emberflow.errors import ConfigError
from emberflow.ml.model_outputs import ModelOutput
from emberflow.ml.saving import METADATA, SAVED_MODEL, StageWriter, check_trusted, read_metadata, with_params
from emberflow.ml.training import Trained, file_of
from emberflow.strategies.periodic.combiners import NAMES

if TYPE_CHECKING:
    from emberflow.ml.estimator import KerasEstimator
    from emberflow.ml.model import KerasModel

BUILDER = "builder.pickle"
CALLBACKS = "callbacks.pickle"
OUTPUTS = "answers"  # the key in the files of format 1
PADDING = "padding"


class ModelWriter(StageWriter):
    """Saves a KerasModel."""

    def _fill(self, folder: Path) -> dict[str, Any]:
        model: KerasModel = self._instance
        (folder / KERAS_FILE).write_bytes(model.trained.keras_file)
        model._export(folder / SAVED_MODEL)  # noqa: SLF001 - internal to Emberflow
        return describe_trained(model.trained)


class EstimatorWriter(StageWriter):
    """Saves a KerasEstimator."""

    def _fill(self, folder: Path) -> dict[str, Any]:
        estimator: KerasEstimator = self._instance
        if callable(estimator.getOrDefault("combiner")):
            raise ConfigError(
                "A combiner must be a name to be saved. Received: a function.",
                fix=f"Set combiner to {one_of(NAMES)} before saving, and your function again after loading.",
            )
        is_code = callable(estimator.model) and not hasattr(estimator.model, "compile")
        if is_code:
            from emberflow._driver.shipping import ship

            (folder / BUILDER).write_bytes(ship(estimator.model, is_connect=False))
        elif estimator.model is not None:
            (folder / KERAS_FILE).write_bytes(file_of(estimator.model))
        if estimator.callbacks:
            (folder / CALLBACKS).write_bytes(cloudpickle.dumps(estimator.callbacks))
        return {"has_code": is_code or bool(estimator.callbacks)}


def describe_trained(trained: Trained) -> dict[str, Any]:
    """Return what the metadata of a KerasModel holds beside its Params."""
    outputs = [asdict(output) for output in trained.outputs]
    padding = {"to": dict(trained.pad_to), "value": trained.pad_value}
    return {"history": trained.history, OUTPUTS: outputs, PADDING: padding}


def load_model(cls: type["KerasModel"], path: str) -> "KerasModel":
    """Load what `ModelWriter` saved, or the newest of the versions in a folder."""
    path = resolve_path(None, path)
    newest = None if storage.exists(storage.join(path, METADATA)) else newest_version(path)
    folder = path if newest is None else newest.path
    with storage.reading_folder(folder):
        metadata = read_metadata(cls, folder)
        keras_file = storage.read_bytes(storage.join(folder, KERAS_FILE))
    ours = metadata["emberflow"]
    trained = Trained(
        keras_file=keras_file,
        history=ours["history"],
        outputs=tuple(ModelOutput(**output) for output in ours[OUTPUTS]),
        pad_to=ours.get(PADDING, {}).get("to", {}),
        pad_value=ours.get(PADDING, {}).get("value"),
    )
    return with_params(cls(trained=trained, versions="" if newest is None else path), metadata)


def load_estimator(cls: type["KerasEstimator"], path: str, *, trusted: bool) -> "KerasEstimator":
    """Load what `EstimatorWriter` saved; code only when trusted."""
    from emberflow.ml.training import model_of

    path = resolve_path(None, path)
    with storage.reading_folder(path):
        metadata = read_metadata(cls, path)
        files = {name: storage.join(path, name) for name in (BUILDER, KERAS_FILE, CALLBACKS)}
        present = {name: storage.read_bytes(file) for name, file in files.items() if storage.exists(file)}
    code = present.keys() & {BUILDER, CALLBACKS}  # by the files that exist: the metadata may be wrong
    check_trusted(cls, path, code, trusted=trusted)
    estimator = cls()
    for name, decode in ((BUILDER, pickle.loads), (KERAS_FILE, model_of)):
        if name in present:
            estimator.setModel(decode(present[name]))
    if CALLBACKS in present:
        estimator.setCallbacks(pickle.loads(present[CALLBACKS]))
    return with_params(estimator, metadata)
