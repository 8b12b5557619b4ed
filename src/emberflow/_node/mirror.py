"""Remote folders on the node's disk, for programs that can write local paths only: fetched first, then kept equal.

Every URL has one local path, ``<root>/hdfs/host:9000/models/best.keras``, so folders inside each other share
files. What changed is copied aside and uploaded by `uploads`, so that a file that is written again meanwhile is
never uploaded half. Event files only grow, and are uploaded as they are.
"""

import shutil
import sys
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from emberflow import storage
from emberflow._node.folder_versions import FolderVersions, Stamp, stamps_in
from emberflow._node.uploads import UNFINISHED, Upload, Uploads, get_file, put_file
from emberflow._plan import deadlines
from emberflow.errors import ConfigError, StorageError

CHECKPOINTS = frozenset({".keras", ".h5"})  # half of one of these files is worthless


def is_log(path: str | Path) -> bool:
    """Tell whether a file is TensorBoard's: an event file, or below ``plugins/profile``.

    >>> is_log("s3://logs/train/events.out.tfevents.17.host"), is_log("s3://logs/best.keras")
    (True, False)
    """
    text = str(path)
    return "tfevents" in text.rpartition("/")[2] or "/plugins/profile/" in text


class Mirror:
    """The remote folders of one node. A context manager: at its end everything is uploaded.

    Args:
        root: A local folder for them.
        resolve: Returns the URL that a path means.

    Attributes:
        resolve: The same.
    """

    def __init__(self, root: Path, resolve: Callable[[str], str] = str) -> None:
        self.resolve = resolve
        self._root = root
        self._uploads = Uploads()
        self._folders: dict[Path, str] = {}
        self._versions: dict[Path, FolderVersions] = {}
        self._scanned: set[Path] = set()
        self._known: dict[Path, Stamp] = {}  # as stored, or on its way
        self._seen: dict[Path, Stamp] = {}  # as at the last scan
        self._downloaded: set[Path] = set()
        self._lock = threading.RLock()
        self._is_over = threading.Event()

    def path_of(self, url: str) -> Path:
        """Return the one local path of a URL; that of a local path is the path itself."""
        if storage.is_local(url):
            return Path(storage.file_system(url)[1])
        scheme, _, rest = url.partition(":")
        parts = [part for part in rest.split("/") if part]
        if ".." in parts or not parts:
            raise ConfigError(
                f"A remote path must name a folder below its host, without '..'. Received: path={url!r}.",
                fix="Write the path out, such as hdfs://host/user/me/logs.",
            )
        return self._root.joinpath(scheme.lower(), *parts)

    def folder(self, url: str, *, fetch: bool, scan: bool = False) -> Path:
        """Return the local folder of a URL, which is uploaded from now on.

        Args:
            url: The remote folder.
            fetch: Download what is there.
            scan: Look for changed files at intervals as well, and not only in `sync`.
        """
        local = self.path_of(url)
        if storage.is_local(url):
            local.mkdir(parents=True, exist_ok=True)
            return local
        with self._lock:
            if local not in self._folders:
                self._check_folder(url)  # a wrong host or an expired key is known before the training
                if fetch:
                    self._fetch(url)
                local.mkdir(parents=True, exist_ok=True)
                self._folders[local] = url.rstrip("/")
            if scan and not self._scanned:
                threading.Thread(target=self._scan, name="emberflow-mirror", daemon=True).start()
            if scan:
                self._scanned.add(local)
        return local

    def file(self, url: str, *, fetch: bool) -> Path:
        """Return the local path of a remote file, whose folder is uploaded from now on."""
        local = self.path_of(url)
        self.folder(url.rstrip("/").rpartition("/")[0], fetch=False)
        with self._lock:
            if fetch and not local.exists() and storage.exists(url):
                get_file(url, local)
                self._known[local] = _stamp(local)
        return local

    def versions(self, url: str) -> Path:
        """Return the local folder of a URL whose files only make sense together; see `FolderVersions`."""
        local = self.path_of(url)
        with self._lock:
            if local not in self._versions:
                self._check_folder(url)
                self._versions[local] = FolderVersions(url, local)
                self._versions[local].fetch()
        return local

    def sync(self, *, versions: bool = True) -> None:
        """Have everything that changed uploaded; call it while no file is being written.

        Args:
            versions: Whether folders of `versions` too. They come last: who continues from one finds all else.

        Raises:
            StorageError: An earlier upload failed.
        """
        self._uploads.check()
        with self._lock:
            self._upload_changed()
            self._delete_gone()
            for version in self._versions.values() if versions else ():
                self._upload_version(version)

    def finish(self) -> None:
        """Upload everything that changed, and wait for it.

        Raises:
            StorageError: An upload failed.
        """
        self.sync()
        self._uploads.wait()

    def disregard_unfinished(self) -> None:
        """Leave out checkpoints that changed since the last `sync`: what wrote them may have been interrupted."""
        with self._lock:
            for path, stamp in self._changed():
                if path.suffix in CHECKPOINTS and not self._is_scanned(path):
                    self._known[path] = stamp
            for version in self._versions.values():
                version.disregard_changes()

    def begin_download(self, path: Path) -> bool:
        """Tell whether a local file may be overwritten by the stored one; it is never uploaded from then on."""
        with self._lock:
            if path not in self._downloaded and path.exists():
                return False  # this node writes it
            self._downloaded.add(path)
            return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        try:
            self.finish()
            self._check_complete()
        except (StorageError, OSError) as failure:
            if kind is None:
                raise
            sys.stderr.write(f"Not everything was uploaded before this node ended: {failure}\n")
        finally:
            self._uploads.close()

    def _check_folder(self, url: str) -> None:
        if storage.exists(url) and not storage.is_folder(url):
            raise StorageError(
                f"Expected a folder. Received: path={url!r}, which is a file.",
                fix="Pass the path of its folder.",
            )

    def _fetch(self, url: str) -> None:
        for file in storage.list_files(url):
            local = self.path_of(file.path)
            if not local.exists() and local.suffix != UNFINISHED:
                get_file(file.path, local)
                self._known[local] = _stamp(local)

    def _changed(self) -> list[tuple[Path, Stamp]]:
        """Return the files that are not as stored, the oldest first: what names other files is written after them."""
        found: dict[Path, Stamp] = {}
        for folder in self._folders:
            found |= {folder / name: stamp for name, stamp in stamps_in(folder).items()}
        changed = [
            (path, stamp)
            for path, stamp in found.items()
            if self._known.get(path) != stamp
            and path not in self._downloaded
            and not any(folder in path.parents for folder in self._versions)
        ]
        return sorted(changed, key=lambda each: each[1][1])

    def _upload_changed(self) -> None:
        for path, stamp in self._changed():
            self._upload(path, stamp)

    def _upload(self, path: Path, stamp: Stamp) -> None:
        url = self._url_of(path)
        if is_log(path):
            self._uploads.put(Upload(url=url, run=lambda: put_file(path, url), is_log=True))
        else:
            staged = self._aside()
            if not _is_copied(path, staged, stamp):
                return
            self._uploads.put(Upload(url=url, run=lambda: put_file(staged, url), staged=staged))
        self._known[path] = stamp

    def _check_complete(self) -> None:
        """Refuse to end while something of your program still writes: half a file would be stored."""
        changed = [path for path, _ in self._changed() if not is_log(path)]
        if changed:
            raise StorageError(
                f"A mirrored file changed while the node ended. Received: path={self._url_of(changed[0])!r}, "
                "which is not uploaded as it is now.",
                fix="End the threads and processes that write it before your function returns.",
            )

    def _upload_version(self, version: FolderVersions) -> None:
        if not version.has_changed:
            return
        staged = self._aside()
        number = version.stage(staged)
        run = (lambda: version.publish(staged, number)) if number else version.delete
        self._uploads.put(Upload(url=version.url, run=run, staged=staged if number else None))

    def _delete_gone(self) -> None:
        for path in [path for path in self._known if not path.exists()]:
            url = self._url_of(path)
            self._uploads.put(Upload(url=url, run=lambda url=url: storage.delete(url)))  # type: ignore[misc]
            del self._known[path]

    def _scan(self) -> None:
        """Upload files of other writers once they have not changed from one scan to the next."""
        while not self._is_over.wait(deadlines.MIRROR_SCAN_INTERVAL):
            with self._lock, self._uploads.noting_failure():
                changed = [(path, stamp) for path, stamp in self._changed() if self._is_scanned(path)]
                before, self._seen = self._seen, dict(changed)
                for path, stamp in changed:
                    if is_log(path) or before.get(path) == stamp:
                        self._upload(path, stamp)
                self._delete_gone()

    def _is_scanned(self, path: Path) -> bool:
        return any(folder in path.parents for folder in self._scanned)

    def _url_of(self, path: Path) -> str:
        folder = next(folder for folder in self._folders if folder in path.parents)
        return storage.join(self._folders[folder], str(path.relative_to(folder)))

    def _aside(self) -> Path:
        folder = self._root / ".staged"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / uuid.uuid4().hex


def _is_copied(path: Path, staged: Path, stamp: Stamp) -> bool:
    """Copy a file; tell whether it stayed the same meanwhile. Otherwise the next scan, or the end, finds it again."""
    with suppress(FileNotFoundError):  # another thread may delete it
        shutil.copyfile(path, staged)
        if _stamp(path) == stamp:
            return True
    staged.unlink(missing_ok=True)
    return False


def _stamp(path: Path) -> Stamp:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns
