"""Where executors load the model from: storage, or a file that Spark ships to them once."""

import hashlib
import json
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emberflow import storage
from emberflow._score.keras_model import describe_keras, load_keras
from emberflow._score.model_facts import ModelFacts, Tensor
from emberflow._score.saved_model import FILE, read_saved_model
from emberflow.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BLOCK = 1 << 20  # bytes that are copied or hashed at a time: models may be larger than memory


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """All that a task needs to load the model.

    Attributes:
        kind: "saved_model", "keras" or "function".
        key: The same for the same model: a process loads it once.
        path: Where it is stored, or empty if it is shipped.
        file: The name of the Spark file it is shipped as, or empty.
        is_archive: Whether the Spark file is a zip of the model's folder.
        signature: The SavedModel's signature.
        tags: The SavedModel's tags.
        objects: Pickled custom classes and functions of a Keras model, by name.
        safe_mode: Whether code in a Keras file is refused.
        fn: The pickled function that loads a predictor.
        takes_one: Whether the function's predictor takes one array instead of a dictionary.
        outputs: The model's outputs in its own order.
        versions: The folder of versions that a stream follows: each task takes the newest; else empty.
        shape: The SavedModel's inputs and outputs that its versions must have, where a stream follows them.
    """

    kind: str
    key: str
    path: str = ""
    file: str = ""
    is_archive: bool = False
    signature: str = ""
    tags: tuple[str, ...] = ()
    objects: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    safe_mode: bool = True
    fn: bytes = field(default=b"", repr=False)
    takes_one: bool = False
    outputs: tuple[str, ...] = ()
    versions: str = ""
    shape: tuple[tuple[Tensor, ...], ...] = ()


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """How to load the model, as the user declared it."""

    signature: str = "serving_default"
    tags: tuple[str, ...] = ("serve",)
    custom_objects: Mapping[str, Any] = field(default_factory=dict)


def is_keras_file(path: str) -> bool:
    """Tell whether a path is that of a Keras file and not of a SavedModel's folder."""
    return path.rstrip("/").endswith((".keras", ".h5"))


def kind_of(model: Any) -> str:
    """Return what was passed as a model: a path's kind, "object" or "function"."""
    if isinstance(model, str | Path):
        return "keras" if is_keras_file(str(model)) else "saved_model"
    if hasattr(model, "predict_on_batch") and hasattr(model, "save"):
        return "object"
    if callable(model):
        return "function"
    raise ConfigError(
        "`model` must be a path, a Keras model, or a function that loads one and returns a predictor. "
        f"Received: model={model!r}.",
        fix='Pass the path of a SavedModel or a .keras file: ef.predict(df, "hdfs:///models/mnist/1").',
    )


def describe_path(path: str, load_options: LoadOptions) -> ModelFacts:
    """Return the inputs and outputs of the model at a path."""
    if is_keras_file(path):
        with tempfile.TemporaryDirectory(prefix="emberflow-") as folder:
            local = storage.local_path(path) or _fetched_file(path, Path(folder))
            return describe_keras(
                load_keras(str(local), custom_objects=dict(load_options.custom_objects), safe_mode=True)
            )
    with storage.reading_folder(path):
        if not storage.exists(storage.join(path, FILE)):
            raise model_not_found(path)
        data = storage.read_bytes(storage.join(path, FILE))
    return read_saved_model(data, path=path, signature=load_options.signature, tags=load_options.tags)


def model_not_found(path: str) -> ModelError:
    """Return the error for a path without a model."""
    return ModelError(
        f"There must be a model at the path. Received: {path!r}, which is no .keras file and has no {FILE}.",
        fix="Check the path, and that the program that created it succeeded.",
    )


def fingerprint(path: str) -> str:
    """Return a digest of a stored model's file names, sizes and times."""
    digest = hashlib.blake2b(path.encode(), digest_size=16)
    for file in storage.list_files(path):
        digest.update(f"|{file.path}|{file.size}|{file.modified}".encode())
    return digest.hexdigest()


def pack(path: Path, into: Path) -> Path:
    """Return the model as one file named after its content: itself, or a zip of its folder."""
    digest = hashlib.blake2b(digest_size=16)
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    for file in files:
        digest.update(f"|{file.relative_to(path.parent)}|".encode())
        with file.open("rb") as opened:
            while block := opened.read(BLOCK):
                digest.update(block)
    suffix = path.suffix if path.is_file() else ".zip"
    target = into / f"emberflow-{digest.hexdigest()}{suffix}"
    if target.exists():
        return target
    aside = target.with_name(f".{target.name}.tmp")
    if path.is_file():
        shutil.copyfile(path, aside)
    else:
        with zipfile.ZipFile(aside, "w", zipfile.ZIP_STORED) as archive:
            for file in files:
                archive.write(file, str(file.relative_to(path)))
    aside.replace(target)
    return target


def ship_file(spark: "SparkSession", path: Path, *, is_connect: bool) -> tuple[str, str]:
    """Ship a local model to every executor once, as a Spark file; return the file's name and the content's key."""
    if is_connect:
        with tempfile.TemporaryDirectory(prefix="emberflow-") as folder:
            packed = pack(path, Path(folder))
            spark.addArtifact(str(packed), file=True)
            return packed.name, packed.stem
    from pyspark import SparkFiles

    # Spark serves the file from this path later, and this folder lives as long as the session.
    packed = pack(path, Path(SparkFiles.getRootDirectory()))
    spark.sparkContext.addFile(str(packed))
    return packed.name, packed.stem


def shipped_objects(objects: Mapping[str, Any], *, is_connect: bool) -> dict[str, bytes]:
    """Return the user's own classes and functions, pickled one by one."""
    from emberflow._driver.shipping import ship

    return {name: ship(value, is_connect=is_connect) for name, value in objects.items()}


def custom_objects_of(model: Any) -> dict[str, Any]:
    """Return the custom classes of a Keras model by their registered names."""
    import keras

    config = json.dumps(keras.saving.serialize_keras_object(model), default=str)
    registered = keras.saving.get_custom_objects().items()
    found: dict[str, Any] = {name: value for name, value in registered if json.dumps(name) in config}
    layers = model._flatten_layers() if hasattr(model, "_flatten_layers") else [model]  # noqa: SLF001
    for layer in layers:
        kind = type(layer)
        if kind.__module__.partition(".")[0] != "keras":
            found.setdefault(keras.saving.get_registered_name(kind), kind)
    return found


def _fetched_file(path: str, folder: Path) -> Path:
    target = folder / Path(path).name
    with storage.open_file(path) as source, target.open("wb") as copy:
        while block := source.read(BLOCK):
            copy.write(block)
    return target
