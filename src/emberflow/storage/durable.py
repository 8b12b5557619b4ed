"""Local files that survive a power failure: content is synced before its name.

A rename alone is atomic for other processes only. After a crash of the machine the new name may exist with no
content, unless the content was synced (fsync) before the rename. Other stores sync by themselves.
"""

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from emberflow.storage.failures import translated
from emberflow.storage.location import is_local, locate

THREADS = 8  # a file system writes its journal once for all fsync calls that wait at the same time
_NO_SUCH_CALL = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EACCES})


def sync_content(path: str) -> None:
    """Sync a local file, or a folder with all its content."""
    if is_local(path):
        with translated(path):
            sync_tree(Path(locate(path).path))


def sync_name(path: str) -> None:
    """Sync the name of a local file or folder."""
    if is_local(path):
        with translated(path):
            sync_folder(Path(locate(path).path).parent)


def make_parent(path: str) -> None:
    """Make the local folder that contains a path, and sync its name."""
    if is_local(path):
        with translated(path):
            make_folders(Path(locate(path).path).parent)


def sync_tree(path: Path) -> None:
    """Sync a file, or a folder with all its content."""
    if not path.is_dir():
        _sync(path)
        return
    files, folders = [], []
    for name, _, names in os.walk(path):
        folders.append(Path(name))
        files += [Path(name, each) for each in names]
    if len(files) > 1:
        with ThreadPoolExecutor(THREADS, "fsync") as pool:
            list(pool.map(_sync, files))
    else:
        for file in files:
            _sync(file)
    for folder in reversed(folders):
        sync_folder(folder)


def sync_folder(path: Path) -> None:
    """Sync the names in a folder, where the file system supports it (some network file systems do not)."""
    try:
        _sync(path)
    except OSError as error:
        if error.errno not in _NO_SUCH_CALL:
            raise


def make_folders(path: Path) -> None:
    """Make a folder and its parents, and sync their names."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        sync_folder(folder.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
