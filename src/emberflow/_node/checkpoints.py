"""Checkpoints in the user's shared folder: each attempt writes only its own, and reads only complete ones.

    <checkpoint_dir>/attempt-00003/step-000000120/...

A dying attempt may overlap the next by seconds. It has another number, so it cannot touch the next one's
folder; and what the next one starts from was chosen once, on the driver, the same for all ranks.
"""

import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from emberflow import storage
from emberflow._plan.plan import CheckpointPlan
from emberflow.errors import ConfigError

ATTEMPT = re.compile(r"attempt-(\d+)")
STEP = re.compile(r"step-(\d+)")
KEPT = 3


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A complete checkpoint, on this node's disk.

    Attributes:
        step: The step at which it was saved.
        path: A local folder with what was saved.
        url: Where it is kept.
    """

    step: int
    path: Path
    url: str

    def __fspath__(self) -> str:
        return str(self.path)


class Checkpoints:
    """Saves and finds checkpoints for one node of one attempt."""

    def __init__(self, plan: CheckpointPlan, work_dir: Path, *, writes: bool) -> None:
        self._plan = plan
        self._work_dir = work_dir
        self._writes = writes
        self._own = storage.join(plan.folder, f"attempt-{plan.number:05d}")

    def save(self, write: Callable[[Path], object], step: int) -> str | None:
        """Have `write(folder)` fill a local folder, then publish it whole; None on nodes that do not write."""
        if not self._writes:
            return None
        url = storage.join(self._own, f"step-{step:09d}")
        with tempfile.TemporaryDirectory(dir=self._work_dir) as name:
            local = Path(name) / "checkpoint"
            local.mkdir()
            write(local)
            storage.put_folder(local, url)
        for old in self._own_steps()[:-KEPT]:
            storage.delete(old)
        return url

    def latest(self) -> Checkpoint | None:
        """Return the newest complete checkpoint that this attempt may read."""
        own = self._own_steps()
        url = own[-1] if own else self._plan.resume_from
        if url is None:
            return None
        found = STEP.search(_name(url))
        step = int(found[1]) if found else 0
        if storage.is_local(url):
            return Checkpoint(step=step, path=Path(storage.folder_root(url)), url=url)
        local = self._work_dir / f"checkpoint-{step}"
        if not local.exists():
            storage.get_folder(url, local)
        return Checkpoint(step=step, path=local, url=url)

    def _own_steps(self) -> list[str]:
        return _steps_of(self._own)


def plan_checkpoints(folder: str, run_id: str, attempt: int) -> CheckpointPlan:
    """Choose the attempt's number and what it starts from, and leave the probe. For the driver."""
    found = [(int(match[1]), path) for path in _listed(folder) if (match := ATTEMPT.fullmatch(_name(path)))]
    found.sort()
    complete = [step for _, path in found for step in _steps_of(path)]  # the newest attempt's last step wins
    probe = storage.join(folder, f".emberflow-probe-{run_id}-{attempt}")
    storage.write_bytes(probe, b"")
    number = found[-1][0] + 1 if found else 0
    return CheckpointPlan(
        folder=folder, number=number, resume_from=complete[-1] if complete else None, probe=probe
    )


def absent_checkpoints() -> ConfigError:
    """Return the error for a node that wants checkpoints without a place for them."""
    return ConfigError(
        "Checkpoints need a folder that all nodes share. Received: checkpoint_dir=None.",
        fix='Pass ef.run(..., checkpoint_dir="hdfs:///..."), or any storage that every node can reach.',
    )


def _steps_of(attempt_folder: str) -> list[str]:
    """Return the complete checkpoints below one attempt's folder, oldest first.

    A folder is renamed into place, or named by its manifest, only when it is whole; names in the making are
    hidden and do not match.
    """
    return sorted(path for path in _listed(attempt_folder) if STEP.fullmatch(_name(path)))


def _listed(folder: str) -> list[str]:
    return storage.list_folder(folder) if storage.exists(folder) else []


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
