"""What is published on local disk outlives a power failure: content first, then names.

A rename alone is atomic for other processes only. After a crash of the machine the new name may be there with no
content behind it, unless content was written to disk (fsync) before the rename.
"""

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

THREADS = 8  # file systems write the journal once for all who wait at the same time
_NO_SUCH_CALL = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EACCES})


def sync_tree(path: Path) -> None:
    """Write a file, or a folder with all that is in it, to disk."""
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
    """Write the names in a folder to disk, where the file system knows that (some network ones do not)."""
    try:
        _sync(path)
    except OSError as error:
        if error.errno not in _NO_SUCH_CALL:
            raise


def make_folders(path: Path) -> None:
    """Make a folder and those above it, so that their names last."""
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
