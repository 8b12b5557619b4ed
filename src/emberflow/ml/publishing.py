"""Publishing a Keras model as numbered versions of one folder: complete or absent, in order, never over another."""

import re
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from emberflow import storage
from emberflow._driver.paths import resolve_path
from emberflow._score.model_versions import KERAS_FILE, is_model, newest_version, versions_in
from emberflow._score.saved_model import FILE
from emberflow.config import check_count
from emberflow.errors import StorageError
from emberflow.ml.keras_saving import describe_trained
from emberflow.ml.saving import write_metadata

if TYPE_CHECKING:
    from emberflow.ml.model import KerasModel

ORIGIN = "origin"  # the file that tells one publication from another with the same number
LEAST_KEPT = 2  # a reader that looked for the newest version a moment ago must find it
_TRIES = 10
_LEFT_OVER = re.compile(r"\.([0-9]+)\.[0-9a-f]{32}\.(tmp|old)")


def latest_version(publish_to: str) -> int:
    """Return the number of the newest complete version in a folder, 0 for none."""
    newest = newest_version(publish_to)
    return 0 if newest is None else newest.number


def publish_next(model: "KerasModel", publish_to: str, keep: int) -> int:
    """Publish a model under the next free number; return it."""
    check_count("keepVersions", keep, least=LEAST_KEPT)
    publish_to = resolve_path(None, publish_to)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "version"
        write_version(model, folder)
        origin = secrets.token_hex(8)
        for tries_left in reversed(range(_TRIES)):
            number = max((each.number for each in versions_in(publish_to)), default=0) + 1
            try:
                publish_version(folder, publish_to, number, origin=origin, keep=keep)
            except StorageError:
                if not tries_left or not storage.exists(storage.join(publish_to, str(number))):
                    raise
                continue  # another program has taken the number meanwhile
            break
        return number


def write_version(model: "KerasModel", folder: Path) -> None:
    """Write a model as TensorFlow Serving and `KerasModel.load` read it: a SavedModel, and our files beside it."""
    model._export(folder)  # noqa: SLF001 - internal to Emberflow
    (folder / KERAS_FILE).write_bytes(model.trained.keras_file)
    write_metadata(folder, model, describe_trained(model.trained))


def publish_version(folder: Path, publish_to: str, number: int, *, origin: str, keep: int) -> str:
    """Publish a local folder as a version, and remove versions beyond `keep`; return the version's path.

    Publishing the same origin again, after a crash, changes nothing.

    Args:
        folder: What `write_version` wrote.
        publish_to: The folder of versions.
        number: The version's number.
        origin: The same for the same model, such as the query and batch after which it was stored.
        keep: How many versions stay.
    """
    path = storage.join(publish_to, str(number))
    if not is_published(publish_to, number, origin):
        newest = latest_version(publish_to)
        if newest >= number:
            raise StorageError(
                f"A version must be newer than those that are published. Received: version {number} for "
                f"{publish_to}, where version {newest} is another model's.",
                fix="Another driver publishes there: stop it, or publish to a folder of its own.",
            )
        (folder / ORIGIN).write_text(origin)
        storage.put_folder(folder, path, overwrite=False, last=FILE)
    _remove_old(publish_to, number, keep)
    return path


def is_published(publish_to: str, number: int, origin: str) -> bool:
    """Tell whether a version is there, and is this very model."""
    path = storage.join(publish_to, str(number))
    if not is_model(path):
        return False
    with suppress(FileNotFoundError):
        return storage.read_bytes(storage.join(path, ORIGIN)).decode() == origin
    return False


def _remove_old(publish_to: str, number: int, keep: int) -> None:
    """Remove versions beyond `keep`, and what killed publishers left of older ones."""
    with suppress(
        StorageError, FileNotFoundError
    ):  # another driver removes them too; else at the next version
        for version in versions_in(publish_to)[:-keep]:
            storage.remove_folder(version.path, first=FILE)
        for path in storage.list_folder(publish_to):
            match = _LEFT_OVER.fullmatch(path.rpartition("/")[2])
            if match and int(match[1]) < number:
                storage.delete(path)
