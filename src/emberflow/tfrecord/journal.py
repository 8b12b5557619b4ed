"""The journal of a write: which files of a folder do not count while the write publishes its own.

A write keeps what its tasks have written in ``_temporary-<id>`` inside the target. While it moves these files into
place the journal there names them, and once all are in place it names those that they replace. Readers pass over what
a journal names, so one small file, replaced atomically, decides at every moment which rows there are: on object
stores too, and when the driver is killed. Undoing a write and completing it are the same act: delete what it names.
"""

import json
import os
import socket
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from emberflow import storage

SUCCESS = "_SUCCESS"
TEMPORARY_PREFIX = "_temporary-"
_NAME = "_journal.json"


@dataclass(frozen=True, kw_only=True)
class Journal:
    """What one write has noted.

    Attributes:
        uncounted: Files that readers pass over, relative to the target.
        success: What `_SUCCESS` contained before, to be put back when the write is undone; None where there was none.
        owner: The process that commits.
    """

    uncounted: tuple[str, ...]
    success: str | None
    owner: str


def temporary_folder(path: str, write: str) -> str:
    """Return the folder of a write inside its target."""
    return storage.join(path, TEMPORARY_PREFIX + write)


def write_journal(path: str, write: str, uncounted: Iterable[str], success: str | None) -> None:
    """Note which files do not count; replaces what was noted before."""
    journal = Journal(uncounted=tuple(uncounted), success=success, owner=_this_process())
    storage.write_bytes(_journal_of(path, write), json.dumps(asdict(journal)).encode())


def read_journal(path: str, write: str) -> Journal | None:
    """Return what a write has noted, or None where it publishes nothing."""
    try:
        noted = json.loads(storage.read_bytes(_journal_of(path, write)))
    except FileNotFoundError:
        return None
    return Journal(uncounted=tuple(noted["uncounted"]), success=noted["success"], owner=noted["owner"])


def read_success(path: str) -> str | None:
    """Return the content of `_SUCCESS`: the id of the last write that was completed, or None."""
    try:
        return storage.read_bytes(storage.join(path, SUCCESS)).decode(errors="replace")
    except FileNotFoundError:
        return None


def writes_in(path: str, files: Iterable[storage.StoredFile]) -> set[str]:
    """Return the ids of the writes that have a folder among some files below a target."""
    tops = (file.path[len(path.rstrip("/")) :].strip("/").partition("/")[0] for file in files)
    return {top.removeprefix(TEMPORARY_PREFIX) for top in tops if top.startswith(TEMPORARY_PREFIX)}


def uncounted_files(path: str, files: Iterable[storage.StoredFile]) -> set[str]:
    """Return which of the files below a folder do not count, relative to it.

    Raises:
        FileNotFoundError: A journal has gone since the files were listed: list them again.
    """
    journals = [file for file in files if file.path.rpartition("/")[2] == _NAME]
    found: set[str] = set()
    if not journals:
        return found
    completed = read_success(path)
    for write in writes_in(path, journals) - {completed}:
        journal = read_journal(path, write)
        if journal is None:
            raise FileNotFoundError(_journal_of(path, write))
        found.update(journal.uncounted)
    return found


def is_dead(owner: str) -> bool:
    """Say whether a process that committed is surely gone; a process of another machine may be alive."""
    machine, _, process = owner.rpartition(" ")
    return machine == _machine() and process != _process(process.partition(":")[0])


def _journal_of(path: str, write: str) -> str:
    return storage.join(temporary_folder(path, write), _NAME)


def _this_process() -> str:
    return f"{_machine()} {_process(str(os.getpid()))}"


def _machine() -> str:
    """Name the machine and the container: within one, a process's number means one process."""
    try:
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:  # not Linux
        space = ""
    return f"{socket.gethostname()} {space}"


def _process(pid: str) -> str:
    """Return a process's number with its start time, since numbers are used again; without it if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return f"{pid}:"
    return f"{pid}:{stat.rpartition(')')[2].split()[19]}"
