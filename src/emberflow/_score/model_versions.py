"""Numbered versions of a model in one folder, as TensorFlow Serving reads them: ``clicks/12/saved_model.pb``."""

import dataclasses
import functools
import re
from dataclasses import dataclass
from typing import Any

from emberflow import storage
from emberflow._score.model_facts import ModelFacts, Tensor
from emberflow._score.model_source import LoadOptions, ModelSource, describe_path, is_keras_file
from emberflow._score.saved_model import FILE
from emberflow.errors import ModelError

KERAS_FILE = "model.keras"  # beside the SavedModel in a version that Emberflow published
KEEP_VERSIONS = 5  # a reader may still load the version before, or the one before that
_NUMBER = re.compile(r"[0-9]+")


@dataclass(frozen=True, kw_only=True)
class Version:
    """One version of a model: a SavedModel at ``<folder>/<number>``."""

    number: int
    path: str


@dataclass(frozen=True, kw_only=True)
class KerasVersions:
    """The Keras files of a folder of versions, for a stream that follows it.

    Attributes:
        path: The folder of versions.
        model: The Keras model of one of them, loaded on the driver.
    """

    path: str
    model: Any


def versions_in(folder: str) -> list[Version]:
    """Return all numbered folders, lowest first; on stores without rename the newest may be incomplete."""
    names = ((path.rstrip("/").rpartition("/")[2], path) for path in storage.list_folder(folder))
    found = [Version(number=int(name), path=path) for name, path in names if _NUMBER.fullmatch(name)]
    return sorted(found, key=lambda version: version.number)


def newest_version(folder: str) -> Version | None:
    """Return the newest complete version, or None."""
    return next((each for each in reversed(versions_in(folder)) if is_model(each.path)), None)


def is_model(path: str) -> bool:
    """Tell whether a complete SavedModel is at a path."""
    return storage.exists(storage.join(path, FILE)) and storage.is_complete(path)


def model_at(path: str) -> str:
    """Return the path of the model that a path names: its newest version if it is a folder of versions."""
    if is_keras_file(path) or is_model(path):
        return path
    newest = newest_version(path)
    return path if newest is None else newest.path


def newest_source(source: ModelSource) -> ModelSource:
    """Return the newest version of the folder that a source follows; a source that follows none as it is."""
    if not source.versions:
        return source
    newest = newest_version(source.versions)
    if newest is None:
        raise ModelError(
            f"Executors must see the versions that a stream is scored with. Received: {source.versions!r}, where "
            "this one sees none.",
            fix="Publish to storage that all executors share: hdfs://, s3://, or a mount at the same path.",
        )
    _check_version(newest.path, source.signature, source.tags, source.shape)
    path = storage.join(newest.path, KERAS_FILE) if source.kind == "keras" else newest.path
    return dataclasses.replace(source, path=path, key=f"{source.key}-{newest.number}")


@functools.lru_cache(maxsize=8)  # a process reads each version once
def _check_version(
    path: str, signature: str, tags: tuple[str, ...], shape: tuple[tuple[Tensor, ...], ...]
) -> None:
    """Refuse a version with other inputs or outputs than those that the query was planned with."""
    facts = describe_path(path, LoadOptions(signature=signature, tags=tags))
    if shape_of(facts) != shape:
        raise ModelError(
            f"A new version must have the inputs and outputs of the one before. Received: {path} with "
            f"{', '.join(map(str, (*facts.inputs, *facts.outputs)))}.",
            fix="Start the streaming query again, which then reads the new inputs; or publish this model elsewhere.",
        )


def shape_of(facts: ModelFacts) -> tuple[tuple[Tensor, ...], ...]:
    """Return inputs and outputs for a comparison; the name of an only one does not matter."""
    sides = (facts.inputs, facts.outputs)
    return tuple((dataclasses.replace(side[0], name=""),) if len(side) == 1 else side for side in sides)
