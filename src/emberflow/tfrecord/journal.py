"""The journal of a write: the files of a folder that readers must ignore while the write publishes its own.

The files of a write's tasks are in ``_temporary-<id>`` inside the target. While they are moved into place, the
journal there names them; once all are in place, it names the files that they replace. Readers ignore the files that
a journal names, so one small file, replaced atomically, decides at every moment which rows are visible: also on
object stores, and when the driver is killed. Undoing a write and completing it are the same operation: delete the
named files.
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
    """The journal of one write.

    Attributes:
        uncounted: Files that readers ignore, relative to the target.
        success: The previous content of `_SUCCESS`, restored when the write is undone; None where there was none.
        owner: The process that commits.
    """

    uncounted: tuple[str, ...]
    success: str | None
    owner: str


def temporary_folder(path: str, write: str) -> str:
    """Return the folder of a write inside its target."""
    return storage.join(path, TEMPORARY_PREFIX + write)


def write_journal(path: str, write: str, uncounted: Iterable[str], success: str | None) -> None:
    """Write the journal; it replaces an earlier one."""
    journal = Journal(uncounted=tuple(uncounted), success=success, owner=_this_process())
    storage.write_bytes(_journal_of(path, write), json.dumps(asdict(journal)).encode())


def read_journal(path: str, write: str) -> Journal | None:
    """Return the journal of a write, or None where there is none."""
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
    """Return the files below a folder that readers ignore, relative to it.

    Raises:
        FileNotFoundError: A journal was deleted after the files were listed: list them again.
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
    """Tell whether the process of a commit has surely exited; a process of another machine may be alive."""
    machine, _, process = owner.rpartition(" ")
    return machine == _machine() and process != _process(process.partition(":")[0])


def _journal_of(path: str, write: str) -> str:
    return storage.join(temporary_folder(path, write), _NAME)


def _this_process() -> str:
    return f"{_machine()} {_process(str(os.getpid()))}"


def _machine() -> str:
    """Return the machine and the PID namespace, within which a process's number is unique."""
    try:
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:  # not Linux
        space = ""
    return f"{socket.gethostname()} {space}"


def _process(pid: str) -> str:
    """Return a process's number with its start time, since numbers are reused; without it if it has exited."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return f"{pid}:"
    return f"{pid}:{stat.rpartition(')')[2].split()[19]}"
