"""Uploads beside the training: one thread, the newest version of each path, and an error that the training sees."""

import posixpath
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from emberflow import storage
from emberflow._plan import deadlines
from emberflow.errors import StorageError
from emberflow.storage.failures import translated
from emberflow.storage.outages import not_waiting

MOST_WAITING = 8  # staged copies on the node's disk; above that the training waits for the storage
UNFINISHED = ".uploading"  # the end of a hidden file's name on storage that renames


@dataclass(frozen=True, kw_only=True)
class Upload:
    """One change of the storage.

    Attributes:
        url: What changes there. At most one change of a URL waits: a newer one replaces it.
        run: Makes the change.
        staged: The copy that `run` uploads, deleted afterwards; None where there is none.
        is_log: Whether a failure is only a warning.
    """

    url: str
    run: Callable[[], None]
    staged: Path | None = None
    is_log: bool = False


class Uploads:
    """The uploads of one node, one after the other in a thread of their own."""

    def __init__(self) -> None:
        self._waiting: dict[str, Upload] = {}
        self._changed = threading.Condition()
        self._running: Upload | None = None
        self._done = 0
        self._failure: Exception | None = None
        self._warned: set[str] = set()
        self._is_closed = threading.Event()
        self._thread: threading.Thread | None = None

    def put(self, upload: Upload) -> None:
        """Upload this as soon as those before it are done; wait while too many are.

        Raises:
            StorageError: No upload has ended for too long.
        """
        with self._changed:
            if replaced := self._waiting.pop(upload.url, None):
                _delete(replaced.staged)
            self._wait(lambda: len(self._waiting) < MOST_WAITING)
            self._waiting[upload.url] = upload
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="emberflow-uploads", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait(self) -> None:
        """Wait until all is uploaded.

        Raises:
            StorageError: An upload failed, or none has ended for too long.
        """
        with self._changed:
            self._wait(lambda: not self._waiting and self._running is None)
            self.check()

    def check(self) -> None:
        """Raise the failure of an earlier upload, once."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    @contextmanager
    def noting_failure(self) -> Iterator[None]:
        """Keep an error of the block for the thread that trains."""
        try:
            yield
        except (StorageError, OSError) as error:
            self._failure = self._failure or error

    def close(self) -> None:
        """Start no further upload."""
        self._is_closed.set()
        with self._changed:
            self._changed.notify_all()

    def _wait(self, is_reached: Callable[[], bool]) -> None:
        """Wait for a state of the queue as long as uploads end: each has the whole time."""
        while not is_reached():
            done = self._done
            if not self._changed.wait_for(
                lambda done=done: is_reached() or self._done > done,  # type: ignore[misc]
                deadlines.UPLOAD_TIMEOUT,
            ):
                url = self._running.url if self._running else next(iter(self._waiting))
                raise StorageError(
                    f"An upload must end within {deadlines.UPLOAD_TIMEOUT:.0f} s. Received: path={url!r}, still "
                    f"uploading, and {len(self._waiting)} paths after it.",
                    fix="Check the storage and the network of this host; save smaller files, or less often.",
                )

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closed.is_set(), None)
                if self._is_closed.is_set():
                    return
                url = next(iter(self._waiting))
                self._running = upload = self._waiting.pop(url)
                self._changed.notify_all()
            failure = self._tried(upload)
            _delete(upload.staged)
            with self._changed:
                self._running = None
                self._done += 1
                self._failure = self._failure or failure
                self._changed.notify_all()

    def _tried(self, upload: Upload) -> Exception | None:
        """Upload, again after a failure that may pass; return the last failure that the training must see."""
        pause, over = deadlines.UPLOAD_RETRY_PAUSE, 0.0
        while True:
            try:
                upload.run()
            except Exception as error:  # noqa: BLE001 - the thread that trains raises it
                over = over or time.monotonic() + deadlines.UPLOAD_RETRY_TIMEOUT
                may_pass = isinstance(error, StorageError) and error.is_transient
                if not may_pass or time.monotonic() + pause > over or self._is_closed.wait(pause):
                    return self._judged(upload, error)
                pause *= 4
            else:
                self._warned.discard(upload.url)
                return None

    def _judged(self, upload: Upload, error: Exception) -> Exception | None:
        if isinstance(error, FileNotFoundError):
            error = StorageError(
                f"Expected a bucket or a folder to write to. Received: path={upload.url!r}: {error}.",
                fix="Create the bucket or folder, or correct the path.",
            )
        if not upload.is_log:
            return error
        if upload.url not in self._warned:  # once, until it works again
            self._warned.add(upload.url)
            sys.stderr.write(f"The event file was not uploaded, and the training goes on: {error}\n")
        return None


def put_file(local: Path, url: str) -> None:
    """Upload one file atomically: a reader sees the old content or the new one."""
    if storage.protocol_of(url) not in storage.RENAMING:
        fs, path = storage.file_system(url)
        with translated(url):
            fs.put_file(str(local), path)  # an object appears only when its upload is complete
        return
    # The same name each time: what a killed node leaves is overwritten by the next upload of this file.
    aside = storage.sibling(url, f".{url.rpartition('/')[2]}{UNFINISHED}")
    try:
        fs, path = storage.file_system(aside)
        with translated(url):
            fs.makedirs(posixpath.dirname(path), exist_ok=True)
            fs.put_file(str(local), path)
        storage.publish(aside, url)
    except BaseException:
        with suppress(StorageError), not_waiting():
            storage.delete(aside)
        raise


def get_file(url: str, local: Path) -> None:
    """Download one file."""
    local.parent.mkdir(parents=True, exist_ok=True)
    fs, path = storage.file_system(url)
    with translated(url):
        fs.get_file(path, str(local))


def _delete(staged: Path | None) -> None:
    if staged is None:
        return
    if staged.is_dir():
        shutil.rmtree(staged, ignore_errors=True)
    else:
        staged.unlink(missing_ok=True)
