"""Many files up or down at once, by a bounded number of threads; no file is ever in memory whole."""

import posixpath
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import google_crc32c

from emberflow.errors import StorageError
from emberflow.storage.location import Location

THREADS = 8  # stores answer slower than they transfer: several requests at a time use the network better
BLOCK = 1 << 20  # bytes read at a time


def files_in(folder: Path) -> list[str]:
    """Return the names of all files of a local folder, relative to it."""
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def upload(local: Path, location: Location, *, last: str = "") -> None:
    """Copy all files of a local folder; the one named `last` after all others."""
    names = files_in(local)
    for folder in sorted({posixpath.dirname(name) for name in names}):
        location.make_folder(posixpath.join(location.path, folder).rstrip("/"))

    def put(name: str) -> None:
        location.fs.put_file(str(local / name), posixpath.join(location.path, name))

    for_each([name for name in names if name != last], put)
    if last in names:
        put(last)


def download(location: Location, checksums: dict[str, str], local: Path) -> None:
    """Copy files to a local folder, and compare each with its checksum where there is one."""

    def get(name: str) -> None:
        target = local / name
        location.fs.get_file(posixpath.join(location.path, name), str(target))
        if checksums[name] and checksum(target) != checksums[name]:
            raise StorageError(
                f"A file must be what was published. Received: {name!r} in {location.named(location.path)!r}, "
                "which has changed.",
                fix="Publish the folder again.",
            )

    for folder in {(local / name).parent for name in checksums}:
        folder.mkdir(parents=True, exist_ok=True)
    for_each(list(checksums), get)


def checksum(path: Path) -> str:
    """Return a local file's CRC32C as text."""
    total = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            total = google_crc32c.extend(total, block)
    return f"{total:08x}"


def for_each(names: Sequence[str], do: Callable[[str], object]) -> None:
    """Call a function for each name, several at a time; the first failure ends it once the calls in progress end."""
    if len(names) < 2:
        _one_by_one(names, do)
        return
    with ThreadPoolExecutor(min(THREADS, len(names)), "storage") as pool:
        futures = [pool.submit(do, name) for name in names]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _one_by_one(names: Iterable[str], do: Callable[[str], object]) -> None:
    for name in names:
        do(name)
