"""Saving and loading a stage as one folder, through the storage layer, without the JVM.

metadata/part-00000   what Spark's Pipeline reads (class, uid, Params), and our own metadata
*                     the files of this kind of stage
"""

import json
import tempfile
import time
from collections.abc import Callable, Collection
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from emberflow import storage
from emberflow._driver.paths import resolve_path
from emberflow.errors import ConfigError, StorageError

FORMAT = 1  # of the saved files, so that a later version can tell what it reads
METADATA = "metadata/part-00000"
SAVED_MODEL = "saved_model"
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


def write_metadata(folder: Path, instance: Any, extra: dict[str, Any]) -> None:
    """Write what Spark's Pipeline reads of a stage, and our own metadata."""
    (folder / "metadata").mkdir()
    (folder / METADATA).write_text(json.dumps(_metadata(instance) | {"emberflow": extra}) + "\n")
    (folder / "metadata" / "_SUCCESS").touch()


def read_metadata(cls: type, path: str) -> dict[str, Any]:
    """Return the metadata of a saved stage of this class."""
    file = storage.join(path, METADATA)
    if not storage.exists(file):
        raise StorageError(
            f"{path} must hold a saved {cls.__name__}. Received: a folder without {METADATA}.",
            fix="Pass the path that was passed to save().",
        )
    metadata: dict[str, Any] = json.loads(storage.read_bytes(file))
    kind = metadata["class"].rpartition(".")[2]
    if kind != cls.__name__:
        raise StorageError(
            f"{path} must hold a saved {cls.__name__}. Received: a saved {kind}.",
            fix=f"Load it with {kind}.load(path).",
        )
    return metadata


def check_trusted(cls: type, path: str, code: Collection[str], *, trusted: bool) -> None:
    """Refuse files with code, unless the user trusts them."""
    if code and not trusted:
        raise ConfigError(
            f"The code in {path} must be trusted to be loaded ({', '.join(sorted(code))}). Received: trusted=False.",
            fix=f"If you trust its origin, call {cls.__name__}.load(path, trusted=True).",
        )


def with_params(stage: AnyStage, metadata: dict[str, Any]) -> AnyStage:
    """Return the stage with the uid and the Params that were saved."""
    stage._resetUid(metadata["uid"])  # type: ignore[attr-defined] # noqa: SLF001
    stage._set(**metadata["paramMap"])  # type: ignore[attr-defined] # noqa: SLF001
    return stage


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
