"""Remote event files for TensorBoard, which reads local ones: what grew is downloaded into the node's mirror."""

import sys
import threading
from pathlib import Path

from emberflow import storage
from emberflow._node.mirror import Mirror, is_log
from emberflow._plan import deadlines
from emberflow.errors import StorageError
from emberflow.storage import StoredFile
from emberflow.storage.failures import translated

MOST_BYTES = 4 << 30  # on the node's disk; older event files of a folder that has more are left out
BLOCK = 1 << 20


def follow_logs(url: str, mirror: Mirror) -> str:
    """Return the local folder that TensorBoard shows; a thread fills it from a remote one, until the node ends.

    What this node itself writes there is in the same folder, and shows at once.
    """
    local = mirror.path_of(url)
    if not storage.is_local(url):
        local.mkdir(parents=True, exist_ok=True)
        follower = LogFollower(url, mirror)
        threading.Thread(target=follower.run, name="emberflow-logs", daemon=True).start()
    return str(local)


class LogFollower:
    """Downloads event files of one remote folder.

    Args:
        url: The folder.
        mirror: Where they go; files that this node writes are not touched.
        most_bytes: How much may lie there: the newest files count.
    """

    def __init__(self, url: str, mirror: Mirror, *, most_bytes: int = MOST_BYTES) -> None:
        self._url = url
        self._mirror = mirror
        self._most_bytes = most_bytes
        self._said = ""

    def run(self) -> None:
        """Download at intervals, until the process ends."""
        pause = threading.Event()
        while True:
            try:
                self.update()
            except (StorageError, OSError) as error:
                self._say(f"TensorBoard does not show the newest events: {error}")
            pause.wait(deadlines.LOGS_INTERVAL)

    def update(self) -> int:
        """Download what is new; return its bytes."""
        files = [file for file in storage.list_files(self._url) if is_log(file.path)]
        files.sort(key=lambda file: (-file.modified, file.path))
        total = downloaded = 0
        for file in files:
            total += file.size
            if total > self._most_bytes:
                self._say(
                    f"TensorBoard shows the newest {self._most_bytes >> 20} MB of {self._url}; "
                    "older event files are left out. Show a folder with fewer runs."
                )
                break
            downloaded += self._grown(file)
        return downloaded

    def _grown(self, file: StoredFile) -> int:
        local = self._mirror.path_of(file.path)
        size = local.stat().st_size if local.exists() else -1
        if size == file.size or not self._mirror.begin_download(local):
            return 0
        start = size if 0 < size < file.size else 0  # a shorter one is another file: it is downloaded whole
        return _download(file.path, local, start)

    def _say(self, text: str) -> None:
        if text != self._said:  # once, not at each interval
            self._said = text
            sys.stderr.write(f"{text}\n")


def _download(url: str, local: Path, start: int) -> int:
    """Append what a remote file has from this byte on; return how many bytes."""
    local.parent.mkdir(parents=True, exist_ok=True)
    with translated(url), storage.open_file(url) as source, local.open("ab" if start else "wb") as target:
        source.seek(start)
        while block := source.read(BLOCK):
            target.write(block)
        return target.tell() - start
