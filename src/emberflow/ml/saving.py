"""Saving and loading estimator and model as one folder, through the storage layer, without the JVM.

metadata/part-00000   what Spark's Pipeline reads (class, uid, Params), and our own metadata
model.keras           the Keras model
saved_model/          the same model for serving, with its signature (KerasModel only)
builder.pickle        the function that builds the model: code, loaded only when trusted (KerasEstimator only)
callbacks.pickle      callbacks: the same
"""

import json
import pickle
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import cloudpickle

from emberflow import storage
from emberflow._choices import one_of
from emberflow._driver.paths import resolve_path
from emberflow._score.model_versions import KERAS_FILE, newest_version
from emberflow.errors import ConfigError, StorageError
from emberflow.ml.model_outputs import ModelOutput
from emberflow.ml.training import Trained, file_of
from emberflow.strategies.periodic.combiners import NAMES

if TYPE_CHECKING:
    from emberflow.ml.estimator import KerasEstimator
    from emberflow.ml.model import KerasModel

FORMAT = 1  # of the saved files, so that a later version can tell what it reads
METADATA = "metadata/part-00000"
SAVED_MODEL = "saved_model"
BUILDER = "builder.pickle"
CALLBACKS = "callbacks.pickle"
OUTPUTS = "answers"  # the key in the files of format 1
PADDING = "padding"
PACKAGES = ("emberflow", "keras", "tensorflow", "pyspark")

AnyStage = TypeVar("AnyStage")


class StageWriter:
    """The methods of Spark's MLWriter, without the JVM."""

    def __init__(self, instance: Any) -> None:
        self._instance = instance
        self._overwrites = False

    def overwrite(self) -> "StageWriter":
        """Replace what exists at the path, once the new folder is complete."""
        self._overwrites = True
        return self

    def session(self, sparkSession: Any) -> "StageWriter":  # noqa: ARG002 - Spark's Pipeline calls it
        """Ignore the session: all of one process have the same default file system."""
        return self

    def option(self, key: str, value: Any) -> "StageWriter":  # noqa: ARG002
        """Ignore the option; there are none."""
        return self

    def save(self, path: str) -> None:
        """Write a temporary folder, and publish it atomically, where Spark's own stages would be."""
        path = resolve_path(None, path)
        if not self._overwrites and storage.exists(path):
            raise StorageError(
                f"The path must not exist. Received: path={path!r}.",
                fix="Use write().overwrite().save(path) to replace it.",
            )
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "stage"
            folder.mkdir()
            write_metadata(folder, self._instance, self._fill(folder))
            storage.put_folder(folder, path, overwrite=self._overwrites)

    def _fill(self, folder: Path) -> dict[str, Any]:
        """Write the files of this kind of stage; return their metadata."""
        raise NotImplementedError


class ModelWriter(StageWriter):
    """Saves a KerasModel."""

    def _fill(self, folder: Path) -> dict[str, Any]:
        model: KerasModel = self._instance
        (folder / KERAS_FILE).write_bytes(model.trained.keras_file)
        model.keras().export(str(folder / SAVED_MODEL), verbose=False)
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


class StageReader:
    """The methods of Spark's MLReader, without the JVM."""

    def __init__(self, load: Callable[[str], Any]) -> None:
        self._load = load

    def session(self, sparkSession: Any) -> "StageReader":  # noqa: ARG002
        """Ignore the session: all of one process have the same default file system."""
        return self

    def load(self, path: str) -> Any:
        """Load the stage at the path."""
        return self._load(path)


def describe_trained(trained: Trained) -> dict[str, Any]:
    """Return what the metadata of a KerasModel holds beside its Params."""
    outputs = [asdict(output) for output in trained.outputs]
    padding = {"to": dict(trained.pad_to), "value": trained.pad_value}
    return {"history": trained.history, OUTPUTS: outputs, PADDING: padding}


def write_metadata(folder: Path, instance: Any, extra: dict[str, Any]) -> None:
    """Write what Spark's Pipeline reads of a stage, and our own metadata."""
    (folder / "metadata").mkdir()
    (folder / METADATA).write_text(json.dumps(_metadata(instance) | {"emberflow": extra}) + "\n")
    (folder / "metadata" / "_SUCCESS").touch()


def load_model(cls: type["KerasModel"], path: str) -> "KerasModel":
    """Load what `ModelWriter` saved, or the newest of the versions in a folder."""
    path = resolve_path(None, path)
    newest = None if storage.exists(storage.join(path, METADATA)) else newest_version(path)
    folder = path if newest is None else newest.path
    with storage.reading_folder(folder):
        metadata = _read_metadata(folder)
        keras_file = storage.read_bytes(storage.join(folder, KERAS_FILE))
    ours = metadata["emberflow"]
    trained = Trained(
        keras_file=keras_file,
        history=ours["history"],
        outputs=tuple(ModelOutput(**output) for output in ours[OUTPUTS]),
        pad_to=ours.get(PADDING, {}).get("to", {}),
        pad_value=ours.get(PADDING, {}).get("value"),
    )
    return _with_params(cls(trained=trained, versions="" if newest is None else path), metadata)


def load_estimator(cls: type["KerasEstimator"], path: str, *, trusted: bool) -> "KerasEstimator":
    """Load what `EstimatorWriter` saved; code only when trusted."""
    from emberflow.ml.training import model_of

    path = resolve_path(None, path)
    with storage.reading_folder(path):
        metadata = _read_metadata(path)
        files = {name: storage.join(path, name) for name in (BUILDER, KERAS_FILE, CALLBACKS)}
        present = {name: storage.read_bytes(file) for name, file in files.items() if storage.exists(file)}
    code = present.keys() & {BUILDER, CALLBACKS}  # by the files that exist: the metadata may be wrong
    if code and not trusted:
        raise ConfigError(
            f"The code in {path} must be trusted to be loaded ({', '.join(sorted(code))}). Received: trusted=False.",
            fix="If you trust its origin, call KerasEstimator.load(path, trusted=True).",
        )
    estimator = cls()
    for name, decode in ((BUILDER, pickle.loads), (KERAS_FILE, model_of)):
        if name in present:
            estimator.setModel(decode(present[name]))
    if CALLBACKS in present:
        estimator.setCallbacks(pickle.loads(present[CALLBACKS]))
    return _with_params(estimator, metadata)


def _metadata(instance: Any) -> dict[str, Any]:
    """Return the metadata that Spark's own writer saves, and the versions of our packages."""
    kind = type(instance)
    return {
        "class": f"emberflow.ml.{kind.__name__}",
        "timestamp": int(time.time() * 1000),
        "sparkVersion": version("pyspark"),
        "uid": instance.uid,
        "paramMap": {param.name: value for param, value in instance._paramMap.items()},  # noqa: SLF001
        "defaultParamMap": {
            param.name: value
            for param, value in instance._defaultParamMap.items()  # noqa: SLF001
        },
        "format": FORMAT,
        "versions": {name: version(name) for name in PACKAGES},
    }


def _read_metadata(path: str) -> dict[str, Any]:
    file = storage.join(path, METADATA)
    if not storage.exists(file):
        raise StorageError(
            f"{path} must hold a saved KerasEstimator or KerasModel. Received: a folder without {METADATA}.",
            fix="Pass the path that was passed to save().",
        )
    metadata: dict[str, Any] = json.loads(storage.read_bytes(file))
    return metadata


def _with_params(stage: AnyStage, metadata: dict[str, Any]) -> AnyStage:
    stage._resetUid(metadata["uid"])  # type: ignore[attr-defined] # noqa: SLF001
    stage._set(**metadata["paramMap"])  # type: ignore[attr-defined] # noqa: SLF001
    return stage
