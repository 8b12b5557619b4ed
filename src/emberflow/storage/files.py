"""Files on any storage: read, write atomically, list, rename, delete."""

import posixpath
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from emberflow.errors import StorageError
from emberflow.storage.durable import make_parent, sync_content, sync_name
from emberflow.storage.failures import translated
from emberflow.storage.location import (
    HADOOP,
    LOCAL,
    RENAMING,
    Location,
    locate,
    name_of,
    protocol_of,
    sibling,
)
from emberflow.storage.outages import not_waiting


@contextmanager
def open_file(path: str, mode: str = "rb") -> Iterator[IO[Any]]:
    """Open a file for the length of the block; missing folders are created when writing.

    While the block runs, other programs may see a part of the file. `write_bytes` is atomic.
    """
    location = locate(path)
    with translated(path):
        if mode[0] in "wxa":
            location.make_folder(posixpath.dirname(location.path))
        file = location.fs.open(location.path, mode)
    try:
        yield file
    except BaseException:
        with suppress(Exception):
            _abandon(file, location, mode)
        raise
    with translated(path):
        file.close()  # what was written last goes to the store now


def read_bytes(path: str) -> bytes:
    """Return the whole content of a file."""
    with translated(path), open_file(path) as file:
        return bytes(file.read())


def write_bytes(path: str, content: bytes) -> None:
    """Write a file atomically: a reader sees the old content or the new one."""
    if protocol_of(path) not in RENAMING:
        with translated(path), open_file(path, "wb") as file:  # an object appears once its upload is complete
            file.write(content)
        return
    aside = sibling(path, f".{name_of(path)}.{uuid.uuid4().hex}.tmp")
    make_parent(path)
    try:
        location = locate(aside)
        with translated(path):
            location.make_folder(posixpath.dirname(location.path))
            location.fs.pipe_file(location.path, content)
        publish(aside, path)
    except BaseException:
        with suppress(StorageError), not_waiting():
            delete(aside)
        raise


def exists(path: str) -> bool:
    """Tell whether a file or folder exists."""
    location = locate(path)
    with translated(path):
        return bool(location.fs.exists(location.path))


def is_folder(path: str) -> bool:
    """Tell whether a folder exists; on object stores, whether anything is below the path."""
    location = locate(path)
    with translated(path):
        return bool(location.fs.isdir(location.path))


def list_folder(path: str) -> list[str]:
    """Return the paths directly in a folder, sorted; an empty list where there is no folder."""
    location = locate(path)
    with translated(path):
        found = location.fs.ls(location.path, detail=False) if location.fs.isdir(location.path) else []
        names = {name.rstrip("/") for name in found} - {location.path}
        return sorted(location.named(name) for name in names)


def glob(pattern: str) -> list[str]:
    """Return the paths that match ``*``, ``?``, ``[..]`` and ``**``, sorted."""
    location = locate(pattern)
    with translated(pattern):
        return sorted(location.named(path) for path in location.fs.glob(location.path))


def delete(path: str) -> None:
    """Delete a file or a whole folder; a missing one is no error."""
    location = locate(path)
    with translated(path), suppress(FileNotFoundError):
        location.fs.rm(location.path, recursive=True)


def rename(source: str, target: str) -> None:
    """Move a file or folder within one file system; atomic for the protocols in `RENAMING`."""
    location = locate(source)
    to = locate(target).path
    with translated(target):
        location.make_folder(posixpath.dirname(to))
        if location.protocol in LOCAL:
            Path(location.path).replace(to)
        else:
            more = {"overwrite": True} if location.protocol in HADOOP else {}
            location.fs.mv(location.path, to, recursive=True, **more)


def publish(source: str, target: str) -> None:
    """Rename a file or folder to its final name; on local disk its content is synced before, its name after."""
    sync_content(source)
    rename(source, target)
    sync_name(target)


def _abandon(file: IO[Any], location: Location, mode: str) -> None:
    """Close a file whose block failed; on object stores without publishing what was written so far."""
    if location.is_bucket and mode[0] in "wxa":
        file.discard()  # type: ignore[attr-defined] # fsspec's buffered files
        file.closed = True  # type: ignore[misc] # else the file completes the upload when it is collected
    else:
        file.close()
