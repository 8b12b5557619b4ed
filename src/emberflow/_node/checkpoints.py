"""Checkpoints in the user's shared folder: each attempt writes only its own, and reads only complete ones.

    <checkpoint_dir>/attempt-00003-5f1c9a20/step-000000120/...

A dying attempt may overlap the next by seconds. It has another folder, so it cannot touch the next one's; and
what the next one starts from was chosen once, on the driver, the same for all ranks.
"""

import operator
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from emberflow import storage
from emberflow._plan.plan import CheckpointPlan
from emberflow.errors import ConfigError, StorageError

ATTEMPT = re.compile(r"attempt-(\d+)-\w+")
STEP = re.compile(r"step-(\d+)")
KEPT = 3  # an evaluator may still copy an older one while the chief saves newer ones
TRIES = 5  # the chief may drop a checkpoint while it is copied; a newer one is there then


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A complete checkpoint, on this node's disk or on a mount that it sees.

    Attributes:
        step: The step at which it was saved.
        path: A local folder with what was saved; on an evaluator it stays until a newer one is asked for.
        url: Where it is kept.
    """

    step: int
    path: Path
    url: str

    def __fspath__(self) -> str:
        return str(self.path)


class Checkpoints:
    """Saves and finds checkpoints for one node of one attempt.

    Args:
        plan: Where, and what the attempt starts from.
        work_dir: The node's local folder, for copies.
        writes: Whether this node saves: the chief does.
        follows: Whether this node reads what others save while they train: an evaluator does.
    """

    def __init__(
        self, plan: CheckpointPlan, work_dir: Path, *, writes: bool = False, follows: bool = False
    ) -> None:
        self._plan = plan
        self._work_dir = work_dir
        self._writes = writes
        self._may_see_own = writes or follows
        self._copy: tuple[str, Path] | None = None

    def save(self, write: Callable[[Path], object], step: int) -> str | None:
        """Have `write(folder)` fill a local folder, then publish it atomically; None on nodes that do not write."""
        number = _checked(step)
        if not self._writes:
            return None
        url = storage.join(self._plan.own, f"step-{number:09d}")
        put_checkpoint(write, url, self._work_dir)
        if not self._is_superseded():
            for old in steps_of(self._plan.own)[:-KEPT]:
                storage.remove_folder(old)
        return url

    def latest(self) -> Checkpoint | None:
        """Return the newest complete checkpoint that this attempt may read.

        The first answer on a node that trains is what the attempt starts from: the chief may have gone ahead.
        """
        for tries_left in reversed(range(TRIES)):
            own = steps_of(self._plan.own) if self._may_see_own else []
            url = own[-1] if own else self._plan.resume_from
            try:
                found = None if url is None else self._here(url)
            except (FileNotFoundError, StorageError):
                if not own or not tries_left:
                    raise
                continue  # the chief has saved newer ones meanwhile, and dropped this one
            self._may_see_own = True
            return found
        return None

    def _here(self, url: str) -> Checkpoint:
        # No process deletes what an attempt starts from; the chief deletes its own only when it saves.
        is_safe = self._writes or url == self._plan.resume_from
        local = storage.local_path(url) if is_safe else None
        path = local or self._copied(url)
        return Checkpoint(step=step_of(url), path=path, url=url)

    def _copied(self, url: str) -> Path:
        if self._copy is not None and self._copy[0] == url:
            return self._copy[1]
        local = Path(tempfile.mkdtemp(prefix="checkpoint-", dir=self._work_dir))
        storage.get_folder(url, local)
        if not storage.is_complete(url):
            raise FileNotFoundError(url)  # it went while it was copied
        if self._copy is not None:
            shutil.rmtree(self._copy[1], ignore_errors=True)
        self._copy = (url, local)
        return local

    def _is_superseded(self) -> bool:
        """Whether a later attempt has begun: it may be reading what this attempt would delete."""
        return any(number > self._plan.number for number, _ in attempts_in(self._plan.folder))


def put_checkpoint(write: Callable[[Path], object], url: str, work_dir: Path) -> None:
    """Have `write(folder)` fill a local folder, then publish it atomically."""
    with tempfile.TemporaryDirectory(dir=work_dir) as name:
        local = Path(name) / "checkpoint"
        local.mkdir()
        write(local)
        if not any(local.iterdir()):
            raise ConfigError(
                "A checkpoint must hold something. Received: an empty folder from `write`.",
                fix="Write into the folder that `write` is called with: "
                'lambda folder: model.save(folder / "model.keras").',
            )
        storage.put_folder(local, url)


def absent_checkpoints() -> ConfigError:
    """Return the error for a node that wants checkpoints without a place for them."""
    return ConfigError(
        "Checkpoints need a folder that all nodes share. Received: checkpoint_dir=None.",
        fix='Pass ef.run(..., checkpoint_dir="hdfs:///..."), or any storage that every node can reach.',
    )


def _checked(step: object) -> int:
    try:
        number = operator.index(step)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if number < 0:
        raise ConfigError(
            f"`step` must be a whole number, 0 or more. Received: step={step!r}.",
            fix="Pass the number of steps done so far: ctx.save_checkpoint(write, step=120).",
        )
    return number


def attempts_in(folder: str) -> list[tuple[int, str]]:
    """Return number and path of all attempts, oldest first."""
    names = ((ATTEMPT.fullmatch(_name(path)), path) for path in storage.list_folder(folder))
    return sorted((int(match[1]), path) for match, path in names if match)


def steps_of(attempt_folder: str) -> list[str]:
    """Return the complete checkpoints of one attempt, oldest first; names in the making do not match."""
    found = [path for path in storage.list_folder(attempt_folder) if STEP.fullmatch(_name(path))]
    return sorted(filter(storage.is_complete, found), key=step_of)


def step_of(url: str) -> int:
    """Return the number in the name of a checkpoint."""
    return int(_name(url).partition("-")[2])


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
