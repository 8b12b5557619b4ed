"""Publishing the files of a write atomically, also after a failure or a killed driver.

The order: the journal names the new files; `_SUCCESS` is deleted; the new files are moved into place; when
overwriting, the journal names the old files instead, which are then deleted; `_SUCCESS` is written with the write's
id, which makes the journal void; the write's folder is deleted. A failure before the new files are visible restores
the old state. After that, readers ignore the remaining old files, and the next write deletes them.
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from emberflow import storage
from emberflow._plan import deadlines
from emberflow.errors import StorageError
from emberflow.tfrecord.journal import (
    SUCCESS,
    is_dead,
    read_journal,
    read_success,
    temporary_folder,
    write_journal,
    writes_in,
)

_log = logging.getLogger("emberflow")


def publish(path: str, write: str, moves: Mapping[str, str], replaced: Sequence[str]) -> None:
    """Move the files of a write into place, and delete those that they replace.

    Args:
        path: The target.
        write: The write's id.
        moves: The files inside the write's folder, and their names in the target.
        replaced: Names in the target to delete.
    """
    _clear_others(path, write)
    try:
        write_journal(path, write, moves.values(), read_success(path))
        storage.delete(storage.join(path, SUCCESS))
        for source, name in moves.items():
            storage.rename(storage.join(temporary_folder(path, write), source), storage.join(path, name))
        sync_folders(path, moves.values())
        if replaced:
            write_journal(path, write, replaced, None)
            _delete_all(path, replaced)
        _put_success(path, write, write)
    except BaseException:
        with suppress(StorageError, OSError):  # `undo` runs once more when Spark aborts the job
            undo(path, write)
        raise
    try:
        storage.delete(temporary_folder(path, write))
    except (StorageError, OSError) as error:
        _log.warning("The write is complete, but its folder stays until the next one: %s", error)


def undo(path: str, write: str) -> None:
    """Delete the files that a write left and readers ignore, and restore the `_SUCCESS` that it deleted."""
    journal = read_journal(path, write)
    if journal is not None:
        if (
            read_success(path) == write
        ):  # written, although the store reported a failure: the journal must hold again
            storage.delete(storage.join(path, SUCCESS))
        _delete_all(path, journal.uncounted)
        if journal.success is not None:
            _put_success(path, write, journal.success)
    storage.delete(temporary_folder(path, write))
    _delete_empty(
        path, [""]
    )  # a target that only this write has made: else a retry would find that it exists


def sync_folders(path: str, names: Iterable[str]) -> None:
    """Sync the names of moved files on local disk; other stores do so by themselves."""
    if not storage.is_local(path):
        return
    _, base = storage.file_system(path)
    for folder in {PurePosixPath()} | {folder for name in names for folder in _folders(name)}:
        storage.sync_folder(Path(base / folder))


def _clear_others(path: str, write: str) -> None:
    """Delete the folders of other writes that have ended: completed, killed on this machine, or abandoned."""
    files = storage.list_files(path)
    completed = read_success(path)
    for other in writes_in(path, files) - {write}:
        inside = temporary_folder(path, other) + "/"
        newest = max(file.modified for file in files if file.path.startswith(inside))
        journal = read_journal(path, other)
        is_old = 0 < newest < time.time() - deadlines.ABANDONED_WRITE_AGE
        if other == completed:
            storage.delete(temporary_folder(path, other))
        elif is_old or (journal is not None and is_dead(journal.owner)):
            undo(path, other)


def _put_success(path: str, write: str, content: str) -> None:
    """Write `_SUCCESS` through the write's folder, so that a failure leaves nothing in the target."""
    begun = storage.join(temporary_folder(path, write), SUCCESS)
    storage.write_bytes(begun, content.encode())
    storage.rename(begun, storage.join(path, SUCCESS))
    sync_folders(path, [])


def _delete_all(path: str, names: Iterable[str]) -> None:
    names = list(names)
    for name in names:
        storage.delete(storage.join(path, name))
    _delete_empty(path, {str(folder) for name in names for folder in _folders(name)})


def _delete_empty(path: str, folders: Iterable[str]) -> None:
    """Delete the empty ones of some folders of the target, the deepest first."""
    if storage.protocol_of(path) not in storage.RENAMING:
        return  # object stores have no folders
    fs, base = storage.file_system(path)
    for folder in sorted(folders, key=len, reverse=True):
        with suppress(Exception):  # each driver raises its own error for a folder that is not empty
            fs.rmdir(f"{base}/{folder}".rstrip("/"))


def _folders(name: str) -> list[PurePosixPath]:
    """Return the folders between a target and one of its files."""
    return [folder for folder in PurePosixPath(name).parents if folder.name]
