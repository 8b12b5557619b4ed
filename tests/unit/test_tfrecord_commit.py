"""Commits of a write that fail or are killed at any of their steps, and the write after that."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from emberflow import storage
from emberflow.errors import StorageError
from emberflow.storage import files
from emberflow.tfrecord.journal import TEMPORARY_PREFIX, read_success, temporary_folder, write_journal
from emberflow.tfrecord.publish import publish
from tests.unit.test_tfrecord_reading import rows_of, xs
from tests.unit.test_tfrecord_writer import batches, folder, names, run_tasks, task, write, writer_for

__all__ = ["folder"]  # the fixture

STEPS = ("rename", "write_bytes", "delete")
MODES: dict[str, dict[str, Any]] = {
    "append": {},
    "overwrite": {"overwrite": True},
    "dynamic": {"overwrite": True, "partitionOverwriteMode": "dynamic", "partitionColumns": "k"},
}
OLD, NEW = [0, 2, 4], [10, 12, 14]  # all of them in the partition k=k0
AFTER = {"append": sorted(OLD + NEW), "overwrite": NEW, "dynamic": NEW}


class Faults:
    """Counts the steps that change the storage, and calls `act` before or after one of them."""

    def __init__(self, at: int = 0, act: Callable[[], None] | None = None, *, when: str = "before") -> None:
        self.count = 0
        self._at, self._act, self._when = at, act, when

    def wrap(self, step: Callable[..., None]) -> Callable[..., None]:
        def counted(*args: Any) -> None:
            self.count += 1
            is_due = self._act is not None and (
                self.count >= self._at if self._when == "down" else self.count == self._at
            )
            if is_due and self._when != "after":
                self._fire()
            step(*args)
            if is_due and self._when == "after":
                self._fire()

        return counted

    def _fire(self) -> None:
        assert self._act is not None
        self._act()


@contextmanager
def injected(faults: Faults) -> Iterator[Faults]:
    with pytest.MonkeyPatch.context() as patch:
        for name in STEPS:
            wrapped = faults.wrap(getattr(storage, name))
            for module in (storage, files):  # `write_bytes` renames and deletes too
                patch.setattr(module, name, wrapped)
        yield faults


def refuse() -> None:
    raise StorageError("The storage refused.", fix="Wait until it is back.")


def written(path: str, mode: str) -> tuple[Any, list[Any]]:
    """Write the old rows, run the tasks of the new write; return it, ready to be committed."""
    keys = {"partitionColumns": "k"} if mode == "dynamic" else {}
    write(path, OLD[:2], OLD[2:], **keys)
    job = writer_for(path, **MODES[mode])
    return job, run_tasks(job, NEW[:1], NEW[1:])


def rows(path: str) -> list[int]:
    return xs(rows_of(path))


def visible(path: str) -> list[str]:
    return [name for name in names(path) if not name.startswith("_")]


@pytest.mark.fault
@pytest.mark.parametrize("when", ["before", "after", "down"])
@pytest.mark.parametrize("mode", MODES)
def test_a_commit_that_fails_at_any_step_leaves_one_state_and_a_retry_does_not_double(
    folder: str, mode: str, when: str
) -> None:
    job, messages = written(f"{folder}-0", mode)
    with injected(Faults()) as counted:
        job.commit(messages)
    assert rows(f"{folder}-0") == AFTER[mode]
    assert counted.count >= 6
    for step in range(1, counted.count):  # the last one only deletes what is left of a complete write
        path = f"{folder}-{step}"
        job, messages = written(path, mode)
        with injected(Faults(step, refuse, when=when)):
            with pytest.raises(StorageError, match="refused"):
                job.commit(messages)
            if when == "down":
                with pytest.raises(StorageError):
                    job.abort(messages)
        if when != "down":
            job.abort(messages)
        is_old = rows(path) == OLD
        assert is_old or (mode != "append" and rows(path) == NEW), (step, rows(path))
        if when != "down":
            assert len(visible(path)) == 2, "also other programs see the files of one write"
            assert (read_success(path) is not None) == is_old
            assert not any("_temporary" in name for name in names(path))
        write(path, NEW[:1], NEW[1:], **MODES[mode])
        assert rows(path) == AFTER[mode], step


def test_what_fails_after_success_fails_nothing(folder: str) -> None:
    job, messages = written(folder, "append")
    with injected(Faults()) as counted:
        job.commit(messages)
    job = writer_for(folder)
    messages = run_tasks(job, [20], [21])
    # One step more than before: two writes were completed, and the first of them is cleared away by the second.
    with injected(Faults(counted.count, refuse)):
        job.commit(messages)
    assert rows(folder) == sorted([*OLD, *NEW, 20, 21])
    assert any("_temporary" in name for name in names(folder)), "the store refused to delete it"
    write(folder, [30])
    assert rows(folder) == sorted([*OLD, *NEW, 20, 21, 30])
    assert not any("_temporary" in name for name in names(folder)), "the next write deletes it"


def test_a_repeated_task_and_a_repeated_write_use_the_same_names(folder: str) -> None:
    job = writer_for(folder)
    with task(3):
        lost, counted = (job.write(batches(1, 2)) for _ in range(2))
    assert {file.partition("/")[2] for file in lost.files} == {
        file.partition("/")[2] for file in counted.files
    }
    job.commit([counted])
    (name,) = visible(folder)
    assert name == f"part-00003-{job._job}.tfrecord"
    assert rows(folder) == [1, 2]


def test_the_first_write_that_fails_leaves_no_folder_so_that_mode_error_can_be_retried(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "out")
    job = writer_for(path, ifExists="error")
    messages = run_tasks(job, [1], [2])
    with injected(Faults(3, refuse)), pytest.raises(StorageError, match="refused"):
        job.commit(messages)
    job.abort(messages)
    write(path, [1], [2], ifExists="error")
    assert rows(path) == [1, 2]


def test_the_folder_of_another_write_that_may_be_alive_is_left_alone(folder: str) -> None:
    write(folder, [1])
    other = writer_for(folder)
    messages = run_tasks(other, [2], [3])
    write_journal(folder, other._job, ["part-of-it.tfrecord"], None)
    write(folder, [4])
    other.commit(messages)
    assert rows(folder) == [1, 2, 3, 4]


def test_a_reader_lists_again_when_a_write_is_completed_meanwhile(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, _ = written(folder, "overwrite")
    write_journal(folder, job._job, [], None)
    real = storage.list_files
    listings: list[str] = []

    def listing(path: str, **more: Any) -> list[storage.StoredFile]:
        found = real(path, **more)
        if not listings:
            listings.append(path)
            publish(folder, job._job, {}, [])
        return found

    monkeypatch.setattr(storage, "list_files", listing)
    assert rows(folder) == OLD
    assert listings == [folder]


@pytest.mark.fault
def test_a_killed_driver_leaves_old_or_new_rows_and_success_only_when_complete(tmp_path: Path) -> None:
    """Killed at each step; readers get the old or the new rows, and the next write clears away the rest."""
    command = [sys.executable, "-m", "tests.unit.test_tfrecord_commit", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    killed = json.loads(done.stdout)
    assert set(killed) == set(MODES)
    seen = Counter[str]()
    for mode, count in killed.items():
        assert count >= 6
        for step in range(1, count + 1):
            path = f"{tmp_path}/{mode}-{step}"
            found = rows(path)
            is_committing = storage.exists(f"{temporary_folder(path, _write_of(path))}/_journal.json")
            assert found in (OLD, AFTER[mode])
            if found != OLD and mode != "append":
                seen["new"] += 1
            if read_success(path) is not None:
                seen["success"] += 1
                assert found == (AFTER[mode] if read_success(path) == _write_of(path) else OLD)
            write(path, NEW[:1], NEW[1:], **MODES[mode])
            assert rows(path) == (sorted(found + NEW) if mode == "append" else NEW)
            if is_committing:  # before that it may be the folder of tasks that are still writing
                seen["committing"] += 1
                assert not any("_temporary" in name for name in names(path))
            assert len(visible(path)) == len(rows(path)) * 2 // 3, "other programs see the same rows"
    assert seen["new"] >= 6
    assert seen["success"] >= 6
    assert seen["committing"] >= 18


def _write_of(path: str) -> str:
    """Return the id of the killed write: it left its folder."""
    return (
        next(name for name in names(path) if name.startswith(TEMPORARY_PREFIX))
        .partition("/")[0]
        .removeprefix(TEMPORARY_PREFIX)
    )


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _be_killed_at_each_step(base: str) -> dict[str, int]:
    """Commit in children that are killed at one step after the other; return the number of steps by mode."""
    killed: dict[str, int] = {}
    for mode in MODES:
        step = 0
        while True:
            step += 1
            job, messages = written(f"{base}/{mode}-{step}", mode)
            child = os.fork()
            if not child:
                with injected(Faults(step, _kill)):
                    job.commit(messages)
                os._exit(0)
            _, status = os.waitpid(child, 0)
            if not os.WIFSIGNALED(status):
                break
            killed[mode] = step
    return killed


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_be_killed_at_each_step(sys.argv[1])))
