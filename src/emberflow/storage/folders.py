"""Folders published atomically, and the files in them.

Where a rename is atomic (local disk, HDFS) the folder is uploaded under a hidden name beside its target and then
renamed. Object stores have no rename: there the files go below a prefix that no other program uses, and the manifest
``_manifest.json``, one object written last, names the prefix that counts. `put_plain_folder` is for readers that know
no manifest.
"""

import json
import posixpath
import re
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emberflow.errors import StorageError
from emberflow.storage import files
from emberflow.storage.durable import make_parent, sync_content, sync_name
from emberflow.storage.location import (
    RENAMING,
    Location,
    join,
    locate,
    name_of,
    protocol_of,
    sibling,
    translated,
)

MANIFEST = "_manifest.json"
_PREFIX = re.compile(r"files-[0-9a-f]{32}")


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """One file in a listing; `modified` is in seconds since 1970, or 0 where the store does not say."""

    path: str
    size: int
    modified: float = 0.0


def list_files(path: str, *, recursive: bool = True) -> list[StoredFile]:
    """Return the files of a folder (or the one file), sorted by path; an empty list for nothing."""
    location = locate(folder_root(path))
    with translated(path), suppress(FileNotFoundError):
        found = location.fs.find(location.path, maxdepth=None if recursive else 1, detail=True)
        return [_stored(location, info) for _, info in sorted(found.items()) if info["type"] == "file"]
    return []


def put_folder(local: str | Path, path: str, *, overwrite: bool = True) -> None:
    """Publish a local folder at a path or URL: atomically, also after a failure.

    Args:
        local: The folder to copy.
        path: The target.
        overwrite: Replace what is there; what was there stays until the new folder is complete.
    """
    if not overwrite:
        _refuse_existing(path, path)
    if protocol_of(path) in RENAMING:
        _put_by_rename(Path(local), path)
    else:
        _put_by_manifest(Path(local), path)


def put_plain_folder(local: str | Path, path: str, *, last: str) -> None:
    """Publish a local folder for programs that know no manifest; never over a folder that is there.

    Args:
        local: The folder to copy.
        path: The target.
        last: The file without which readers do not use the folder: on object stores it is written after all others.
    """
    if protocol_of(path) in RENAMING:
        _put_new_by_rename(Path(local), path)
        return
    _refuse_existing(join(path, last), path)
    _upload(Path(local), path, last)


def get_folder(path: str, local: str | Path) -> None:
    """Copy a published folder to a local one."""
    location = locate(folder_root(path))
    listing = list_files(path)
    if not listing:
        raise StorageError(
            f"Expected a folder with files. Received: path={path!r}, where there are none.",
            fix="Check the path, and that the program that created it succeeded.",
        )
    with translated(path):
        sources = [locate(file.path).path for file in listing]
        # Every name is checked before the first file is copied.
        names = [_name_below(location.path, source) for source in sources]
        for source, name in zip(sources, names, strict=True):
            target = Path(local) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            location.fs.get_file(source, str(target))


def folder_root(path: str) -> str:
    """Return where the files of a published folder are: the path, or the prefix its manifest names."""
    if protocol_of(path) in RENAMING or not files.exists(join(path, MANIFEST)):
        return path
    prefix = str(json.loads(files.read_bytes(join(path, MANIFEST)))["prefix"])
    if not _PREFIX.fullmatch(prefix):  # replacing the folder deletes what the manifest names
        raise StorageError(
            f"The manifest of {path!r} must name a folder of its own. Received: prefix={prefix!r}.",
            fix="Another program wrote this manifest: check the write permissions, and publish the folder again.",
        )
    return join(path, prefix)


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
        make_parent(path)
        _upload(local, aside)
        sync_content(aside)
        if files.exists(path):
            files.rename(path, old)  # no storage replaces a folder atomically
        files.rename(aside, path)
        sync_name(path)
    except BaseException:
        if files.exists(old) and not files.exists(path):
            files.rename(old, path)
        files.delete(aside)
        raise
    files.delete(old)


def _put_new_by_rename(local: Path, path: str) -> None:
    aside = sibling(path, f".{name_of(path)}.{uuid.uuid4().hex}.tmp")
    try:
        make_parent(path)
        _upload(local, aside)
        sync_content(aside)
        _refuse_existing(path, path)
        try:
            files.rename(aside, path)  # it fails where a folder with files has appeared meanwhile
        except StorageError:
            _refuse_existing(path, path)
            raise
        sync_name(path)
    except BaseException:
        files.delete(aside)
        raise


def _refuse_existing(mark: str, path: str) -> None:
    if files.exists(mark):
        raise StorageError(
            f"Expected no folder at the target. Received: path={path!r}, which exists.",
            fix="Choose another path, or allow overwriting it.",
        )


def _put_by_manifest(local: Path, path: str) -> None:
    prefix = f"files-{uuid.uuid4().hex}"
    before = folder_root(path)
    try:
        names = _upload(local, join(path, prefix))
        files.write_bytes(join(path, MANIFEST), json.dumps({"prefix": prefix, "files": names}).encode())
    except BaseException:
        files.delete(join(path, prefix))
        raise
    if before != path:
        files.delete(before)


def _upload(local: Path, path: str, last: str = "") -> list[str]:
    location = locate(path)
    names = [str(file.relative_to(local)) for file in local.rglob("*") if file.is_file()]
    names.sort(key=lambda name: (name == last, name))
    with translated(path):
        location.fs.makedirs(location.path, exist_ok=True)
        for name in names:
            to = posixpath.join(location.path, name)
            location.fs.makedirs(posixpath.dirname(to), exist_ok=True)
            location.fs.put_file(str(local / name), to)
    return names


def _stored(location: Location, info: dict[str, Any]) -> StoredFile:
    names = ("mtime", "modified", "LastModified", "modification_time", "created")
    name = next((name for name in names if name in info), "")
    modified = info.get(name) or 0
    seconds = modified.timestamp() if hasattr(modified, "timestamp") else float(modified)
    if name == "modification_time":  # HDFS counts milliseconds
        seconds /= 1000
    return StoredFile(path=location.named(info["name"]), size=int(info.get("size") or 0), modified=seconds)
