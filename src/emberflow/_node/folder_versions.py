"""A mirrored folder whose files only make sense together: stored as numbered folders, each published atomically.

    <url>/step-000000007/...

So a node that is killed during an upload leaves the state before it, and never weights of one epoch with the number
of another.
"""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from emberflow import storage
from emberflow._node.checkpoints import step_of, steps_of

Stamp = tuple[int, int]  # size, and time of the last change in nanoseconds
Stamps = dict[str, Stamp]  # by name


class FolderVersions:
    """The versions of one local folder at a URL, of which the newest counts.

    Args:
        url: Where the versions are.
        local: The folder.
    """

    def __init__(self, url: str, local: Path) -> None:
        self.url = url
        self.local = local
        self._stamps: Stamps = {}
        self._number = 0

    def fetch(self) -> None:
        """Fill the folder with the newest version, if there is one."""
        found = steps_of(self.url)
        if found:
            self._number = step_of(found[-1])
            self.local.mkdir(parents=True)
            storage.get_folder(found[-1], self.local)
        self.disregard_changes()

    def disregard_changes(self) -> None:
        """Take the folder as it is for stored."""
        self._stamps = stamps_in(self.local)

    @property
    def has_changed(self) -> bool:
        """Whether the folder is not as it was when it was last fetched, staged or deleted."""
        return stamps_in(self.local) != self._stamps

    def stage(self, folder: Path) -> int:
        """Copy the folder, and return the number of the version that the copy is to become; 0 if it is empty."""
        self._stamps = stamps_in(self.local)
        if not self._stamps:
            return 0
        shutil.copytree(self.local, folder)
        self._number += 1
        return self._number

    def publish(self, staged: Path, number: int) -> None:
        """Store a staged copy, and delete the versions before it."""
        storage.put_folder(staged, storage.join(self.url, f"step-{number:09d}"))
        for version in steps_of(self.url):
            if step_of(version) < number:
                storage.remove_folder(version)

    def delete(self) -> None:
        """Delete all versions: the folder was deleted."""
        for version in steps_of(self.url):  # the newest last: an older one must not count again
            storage.remove_folder(version)


def stamps_in(folder: Path) -> Stamps:
    """Return size and time of each file below a folder."""
    found: Stamps = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            with suppress(FileNotFoundError):  # it may be deleted meanwhile
                stat = path.stat()
                found[str(path.relative_to(folder))] = (stat.st_size, stat.st_mtime_ns)
    return found
