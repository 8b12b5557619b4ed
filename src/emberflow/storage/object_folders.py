"""Folders on object stores, which have no rename: plain keys at the path itself, a marker first, a manifest last.

A folder that is published gets, in this order: the marker ``_in_progress.json``; its files; the manifest
``_manifest.json`` with name, size and checksum of each; and the marker goes. So a folder with the marker is
incomplete, whatever else it holds, and readers refuse it. Other programs (TensorFlow Serving,
``tf.saved_model.load``, Spark) read the files at their own names.

To replace a folder, the new files are first uploaded beside it, where nobody looks: an upload that fails leaves the
old folder as it was. Then the marker, the old files go, the store copies the new ones, manifest, the marker goes. A
program killed in between leaves the marker, which names the copy beside it, and nobody reads a mixture.

Files that a manifest does not name are no part of the folder. A folder without marker and manifest was never ours:
it is read as it is, and never replaced.
"""

import json
import posixpath
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emberflow.errors import StorageError
from emberflow.storage.failures import translated
from emberflow.storage.location import Location, join, locate, name_of, sibling
from emberflow.storage.transfer import checksum, files_in, for_each, upload

MANIFEST = "_manifest.json"
IN_PROGRESS = "_in_progress.json"
_OURS = frozenset({MANIFEST, IN_PROGRESS})


@dataclass(frozen=True, kw_only=True)
class ObjectFolder:
    """What is at a path of an object store.

    Attributes:
        sizes: The files that are part of the folder.
        checksums: The same files with their checksums; empty texts where nobody knows.
        publication: The id of the publication, or empty for a folder that was never ours.
        problem: Why it may not be read, or empty.
    """

    sizes: Mapping[str, int] = field(default_factory=dict)
    checksums: Mapping[str, str] = field(default_factory=dict)
    publication: str = ""
    problem: str = ""


def look_at(path: str) -> ObjectFolder:
    """Return what is at a path: one that was published, or is being published, or was never ours."""
    location = locate(path)
    with translated(path):
        found = _listing(location)
        if _OURS.isdisjoint(found) and (above := _parent(location)) is not None:
            names = [name for name in _OURS if above.fs.exists(posixpath.join(above.path, name))]
            if names:  # a part of a folder of ours, such as the SavedModel in a saved KerasModel
                return _judged(above, found, set(names), inside=name_of(path) + "/")
        return _judged(location, found, set(found), inside="")


def publish_objects(local: Path, path: str, *, overwrite: bool, last: str) -> None:
    """Publish a local folder as keys below a path; see the module for the order."""
    location = locate(path)
    with translated(path):
        _refuse_bucket(location, path)
        present = set(_listing(location))
        if not present:
            _refuse_file(location, path)
        is_begun = IN_PROGRESS in present
        if present and not is_begun and (MANIFEST not in present or not overwrite):
            raise _occupied(path, is_ours=MANIFEST in present)
        manifest = _describe(local)
        left_over = _staged_before(location, path) if is_begun else ""
        if MANIFEST in present and not is_begun:
            _replace(local, location, path, manifest)
        else:
            _fill(location, path, manifest, lambda: upload(local, location, last=last))
        if left_over:
            _delete_all(locate(left_over))


def remove_objects(path: str, *, first: str) -> None:
    """Delete a folder; with the marker as its first key and its last, so that nobody reads the rest."""
    location = locate(path)
    with translated(path):
        _write(location, IN_PROGRESS, {"publication": "", "removed": True})
        with suppress(FileNotFoundError):
            if first:
                location.fs.rm_file(posixpath.join(location.path, first))
        _delete_all(location)


@contextmanager
def reading_objects(path: str) -> Iterator[ObjectFolder]:
    """Refuse a folder that is incomplete, or that is replaced or removed while the block reads it."""
    before = look_at(path)
    if before.problem:
        raise _incomplete(path, before.problem)
    yield before
    if before.publication and look_at(path).publication != before.publication:
        raise _incomplete(path, "another program replaced or removed it while it was read")


def _replace(local: Path, location: Location, path: str, manifest: dict[str, Any]) -> None:
    staged = sibling(path, f".{name_of(path)}.{uuid.uuid4().hex}.tmp")
    beside = locate(staged)
    try:
        upload(local, beside)
    except BaseException:
        with suppress(Exception):
            _delete_all(beside)
        raise

    def copy(name: str) -> None:
        location.fs.cp_file(posixpath.join(beside.path, name), posixpath.join(location.path, name))

    _write_over(location, path, manifest, lambda: for_each(list(manifest["files"]), copy), staged=staged)
    _delete_all(beside)


def _fill(location: Location, path: str, manifest: dict[str, Any], fill: Callable[[], None]) -> None:
    try:
        _write_over(location, path, manifest, fill)
    except Exception:
        with suppress(Exception):  # what is left keeps its marker
            if _marker(location).get("publication") == manifest["publication"]:
                _delete_all(location)
        raise


def _write_over(
    location: Location, path: str, manifest: dict[str, Any], fill: Callable[[], None], staged: str = ""
) -> None:
    _write(location, IN_PROGRESS, {"publication": manifest["publication"], "files": staged})
    _delete_all(location, but=frozenset({IN_PROGRESS}))
    fill()
    if _marker(location).get("publication") != manifest["publication"]:
        raise StorageError(
            f"Only one program may publish to a path at a time. Received: path={path!r}, where another has begun.",
            fix="Publish to a path of its own, such as a new version number.",
        )
    if problem := _difference(manifest["files"], _listing(location)):
        raise StorageError(
            f"The store must have what was uploaded. Received: path={path!r}, where {problem}.",
            fix="Publish it again, and let no other program write there.",
        )
    _write(location, MANIFEST, manifest)
    location.fs.rm_file(posixpath.join(location.path, IN_PROGRESS))


def _judged(owner: Location, found: Mapping[str, int], own: set[str], *, inside: str) -> ObjectFolder:
    """Return what the marker and the manifest of a folder say about it, or about one folder inside it."""
    if IN_PROGRESS in own:
        beside = _marker(owner).get("files")
        where = f"; its new files are complete in {beside}" if beside else ""
        return ObjectFolder(problem=f"its upload has not ended, or was interrupted{where}")
    if MANIFEST not in own:
        return ObjectFolder(sizes=found, checksums=dict.fromkeys(found, ""))
    manifest = _read(owner, MANIFEST)
    entries = {
        name[len(inside) :]: entry for name, entry in manifest["files"].items() if name.startswith(inside)
    }
    return ObjectFolder(
        sizes={name: entry["size"] for name, entry in entries.items()},
        checksums={name: entry["crc32c"] for name, entry in entries.items()},
        publication=manifest["publication"],
        problem=_difference(entries, found),
    )


def _describe(local: Path) -> dict[str, Any]:
    files = {
        name: {"size": (local / name).stat().st_size, "crc32c": checksum(local / name)}
        for name in files_in(local)
    }
    return {"publication": uuid.uuid4().hex, "files": files}


def _difference(expected: Mapping[str, Any], found: Mapping[str, int]) -> str:
    for name, entry in expected.items():
        if name not in found:
            return f"{name} is missing"
        if found[name] != entry["size"]:
            return f"{name} has {found[name]} bytes instead of {entry['size']}"
    return ""


def _listing(location: Location) -> dict[str, int]:
    """Return name and size of everything below a path; nothing for a path that is a file."""
    try:
        found = location.fs.find(location.path, detail=True)
    except FileNotFoundError as error:
        if error.__cause__ is not None and "NoSuchBucket" in type(error.__cause__).__name__:
            raise
        return {}
    start = len(location.path) + 1
    return {
        name[start:]: int(info["size"] or 0)
        for name, info in found.items()
        if info["type"] == "file" and len(name) >= start
    }


def _parent(location: Location) -> Location | None:
    above = posixpath.dirname(location.path)
    if "/" not in above.strip("/"):
        return None  # the bucket itself is no folder of ours
    return Location(
        fs=location.fs, path=above, protocol=location.protocol, prefix=location.prefix, cut=location.cut
    )


def _write(location: Location, name: str, content: Mapping[str, Any]) -> None:
    location.fs.pipe_file(posixpath.join(location.path, name), json.dumps(content, indent=1).encode())


def _read(location: Location, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(location.fs.cat_file(posixpath.join(location.path, name)))
    return content


def _marker(location: Location) -> dict[str, Any]:
    with suppress(FileNotFoundError):
        return _read(location, IN_PROGRESS)
    return {}


def _staged_before(location: Location, path: str) -> str:
    """Return the copy that an interrupted replacement left; only one of our own names, since it is deleted."""
    staged = str(_marker(location).get("files", ""))
    ours = re.escape(join(sibling(path, f".{name_of(path)}."))) + r"[0-9a-f]{32}\.tmp"
    return staged if re.fullmatch(ours, staged) else ""


def _delete_all(location: Location, but: frozenset[str] = frozenset()) -> None:
    """Delete everything below a path but some names: the manifest first, the marker last."""
    names = sorted(
        set(_listing(location)) - but, key=lambda name: (name != MANIFEST, name == IN_PROGRESS, name)
    )
    paths = [posixpath.join(location.path, name) for name in names]
    if MANIFEST in names:
        location.fs.rm_file(paths.pop(0))
    has_marker = IN_PROGRESS in names
    for_each(paths[:-1] if has_marker else paths, location.fs.rm_file)
    if has_marker:
        location.fs.rm_file(paths[-1])
    if not but and not location.is_bucket:  # a store of another kind may have made folders
        with suppress(FileNotFoundError):
            location.fs.rm(location.path, recursive=True)


def _refuse_file(location: Location, path: str) -> None:
    """Refuse a path that is a key itself: Hadoop and others would see a file there, and no folder."""
    if location.fs.isfile(location.path):
        raise StorageError(
            f"A file is where a folder must be. Received: path={path!r}, which is a file.",
            fix="Choose another path, or delete the file.",
        )


def _refuse_bucket(location: Location, path: str) -> None:
    if "/" not in location.path.strip("/") and location.is_bucket:
        raise StorageError(
            f"A folder is published below a bucket. Received: path={path!r}, the bucket itself.",
            fix=f"Add a name: {path.rstrip('/')}/model.",
        )


def _occupied(path: str, *, is_ours: bool) -> StorageError:
    what = "which exists" if is_ours else "which exists and holds files that another program wrote"
    return StorageError(
        f"Expected no folder at the target. Received: path={path!r}, {what}.",
        fix="Choose another path, or allow overwriting it."
        if is_ours
        else "Choose another path, or delete what is there.",
    )


def _incomplete(path: str, problem: str) -> StorageError:
    return StorageError(
        f"A folder must be complete to be read. Received: path={path!r}: {problem}.",
        fix="Wait until the program that publishes it has ended; if it was killed, publish it again.",
    )
