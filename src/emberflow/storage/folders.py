"""Folders published atomically, and the files in them.

Where a rename is atomic (local disk, HDFS) the folder is uploaded under a hidden name beside its target and then
renamed. Object stores have no rename: `object_folders` says how a folder is published there.
"""

import posixpath
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emberflow.errors import StorageError
from emberflow.storage import files
from emberflow.storage.durable import make_parent, sync_content, sync_name
from emberflow.storage.failures import translated
from emberflow.storage.location import RENAMING, Location, locate, name_of, protocol_of, sibling
from emberflow.storage.object_folders import look_at, publish_objects, reading_objects, remove_objects
from emberflow.storage.outages import not_waiting
from emberflow.storage.transfer import download, upload


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """One file in a listing; `modified` is in seconds since 1970, or 0 where the store does not say."""

    path: str
    size: int
    modified: float = 0.0


def list_files(path: str, *, recursive: bool = True) -> list[StoredFile]:
    """Return the files of a folder (or the one file), sorted by path; an empty list for nothing."""
    location = locate(path)
    with translated(path), suppress(FileNotFoundError):
        found = location.fs.find(location.path, maxdepth=None if recursive else 1, detail=True)
        return [_stored(location, info) for _, info in sorted(found.items()) if info["type"] == "file"]
    return []


def put_folder(local: str | Path, path: str, *, overwrite: bool = True, last: str = "") -> None:
    """Publish a local folder at a path or URL: readers see all of it or nothing, also after a failure.

    On local disk and HDFS the old folder stays until the new one is complete. On object stores it stays until the
    new one is uploaded; a program killed in the seconds in which the store then copies it leaves a folder that
    readers refuse. So publish to a new path, such as a version number, what must never be missing. A folder that
    Emberflow did not publish is never replaced there.

    Args:
        local: The folder to copy.
        path: The target.
        overwrite: Replace what is there; else it is refused, also if it appears in the meantime.
        last: The file without which other programs do not use the folder: on object stores it is uploaded last.
    """
    if protocol_of(path) not in RENAMING:
        publish_objects(Path(local), path, overwrite=overwrite, last=last)
    elif overwrite:
        _put_by_rename(Path(local), path)
    else:
        _put_new_by_rename(Path(local), path)


def get_folder(path: str, local: str | Path) -> None:
    """Copy a folder to a local one; one that is incomplete, or replaced meanwhile, is refused."""
    location = locate(path)
    if protocol_of(path) in RENAMING:
        found = [locate(file.path).path for file in list_files(path)]
        checksums = {_name_below(location.path, source): "" for source in found}
        _refuse_nothing(path, checksums)
        with translated(path):
            download(location, checksums, Path(local))
        return
    with reading_objects(path) as folder:
        checksums = {_checked(path, name): checksum for name, checksum in folder.checksums.items()}
        _refuse_nothing(path, checksums)
        with translated(path):
            download(location, checksums, Path(local))


@contextmanager
def reading_folder(path: str) -> Iterator[None]:
    """Read files of a folder that belong together: refuse it if it is incomplete, or replaced meanwhile.

    Folders that were renamed into place are always complete.
    """
    if protocol_of(path) in RENAMING:
        yield
        return
    with reading_objects(path):
        yield


def is_complete(path: str) -> bool:
    """Tell whether a whole folder is there: renamed into place, or with all that its manifest names."""
    if protocol_of(path) in RENAMING:
        return files.exists(path)
    folder = look_at(path)
    return bool(folder.sizes) and not folder.problem


def remove_folder(path: str, *, first: str = "") -> None:
    """Delete a folder: readers see all of it or nothing.

    Args:
        path: The folder.
        first: The file without which other programs do not use the folder: on object stores it goes first.
    """
    if protocol_of(path) not in RENAMING:
        remove_objects(path, first=first)
        return
    aside = sibling(path, f".{name_of(path)}.{uuid.uuid4().hex}.old")
    files.rename(path, aside)
    files.delete(aside)


def _refuse_nothing(path: str, names: dict[str, str]) -> None:
    if not names:
        raise StorageError(
            f"Expected a folder with files. Received: path={path!r}, where there are none.",
            fix="Check the path, and that the program that created it succeeded.",
        )


def _checked(path: str, name: str) -> str:
    return _name_below(path, posixpath.join(path, name))


def _name_below(root: str, source: str) -> str:
    """Return a file's path below the folder it was listed in; reject one that leads outside the copy."""
    name = source[len(root) :].strip("/")
    if not source.startswith(root) or ".." in name.split("/"):
        raise StorageError(
            f"Names in a folder must stay inside it. Received: {source!r} in the listing of {root!r}.",
            fix="Delete this file: it would be written outside the copy.",
        )
    return name


def _put_by_rename(local: Path, path: str) -> None:
    aside, old = (sibling(path, f".{name_of(path)}.{uuid.uuid4().hex}.{end}") for end in ("tmp", "old"))
    try:
        _upload(local, path, aside)
        if files.exists(path):
            files.rename(path, old)  # no storage replaces a folder atomically
        files.rename(aside, path)
        sync_name(path)
    except BaseException:
        with (
            suppress(StorageError, OSError),
            not_waiting(),
        ):  # the first error counts, not that of a store that is gone
            if files.exists(old) and not files.exists(path):
                files.rename(old, path)
            files.delete(aside)
        raise
    files.delete(old)


def _put_new_by_rename(local: Path, path: str) -> None:
    aside = sibling(path, f".{name_of(path)}.{uuid.uuid4().hex}.tmp")
    _refuse_existing(path)
    try:
        _upload(local, path, aside)
        _refuse_existing(path)
        try:
            files.rename(aside, path)  # it fails where a folder with files has appeared meanwhile
        except StorageError:
            _refuse_existing(path)
            raise
        sync_name(path)
    except BaseException:
        with suppress(StorageError, OSError), not_waiting():
            files.delete(aside)
        raise


def _upload(local: Path, path: str, aside: str) -> None:
    make_parent(path)
    location = locate(aside)
    with translated(path):
        location.make_folder(location.path)
        upload(local, location)
    sync_content(aside)


def _refuse_existing(path: str) -> None:
    if files.exists(path):
        raise StorageError(
            f"Expected no folder at the target. Received: path={path!r}, which exists.",
            fix="Choose another path, or allow overwriting it.",
        )


def _stored(location: Location, info: dict[str, Any]) -> StoredFile:
    names = ("mtime", "modified", "LastModified", "modification_time", "modificationTime", "created")
    name = next((name for name in names if name in info), "")
    modified = info.get(name) or 0
    seconds = modified.timestamp() if hasattr(modified, "timestamp") else float(modified)
    if name.startswith("modification"):  # HDFS counts milliseconds
        seconds /= 1000
    return StoredFile(path=location.named(info["name"]), size=int(info.get("size") or 0), modified=seconds)
