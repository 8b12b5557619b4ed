"""What is published on local disk: content before names, and names before the call returns."""

import errno
import os
from pathlib import Path

import pytest

from emberflow import storage
from emberflow.errors import StorageError
from emberflow.storage import files


class DiskCalls:
    """Notes what is written to disk and what is renamed, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[str, str]] = []
        self._fsync, self._replace = os.fsync, os.replace
        monkeypatch.setattr(os, "fsync", self.fsync)
        monkeypatch.setattr(os, "replace", self.replace)

    def fsync(self, descriptor: int) -> None:
        self._fsync(descriptor)
        self.seen.append(("sync", str(Path(f"/proc/self/fd/{descriptor}").readlink())))

    def replace(self, source: str, target: str) -> None:
        self._replace(source, target)
        self.seen.append(("rename", str(target)))

    def place(self, kind: str, path: Path) -> int:
        return self.seen.index((kind, str(path)))


def test_a_file_is_on_disk_before_its_name_and_its_name_before_the_call_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = DiskCalls(monkeypatch)
    storage.write_bytes(str(tmp_path / "new" / "claim"), b"1")
    assert ("sync", str(tmp_path)) in calls.seen, "the new folder's own name must last too"
    content, name = calls.seen[-3:-1], calls.seen[-1]
    assert content[0][0] == "sync"
    assert ".claim." in content[0][1]
    assert content[1] == ("rename", str(tmp_path / "new" / "claim"))
    assert name == ("sync", str(tmp_path / "new"))


def test_a_folder_is_on_disk_before_its_name_and_the_old_one_goes_last(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "model"
    storage.put_folder(folder, str(target))
    calls = DiskCalls(monkeypatch)
    deleted: list[int] = []
    delete = storage.delete
    monkeypatch.setattr(files, "delete", lambda path: (deleted.append(len(calls.seen)), delete(path)))
    storage.put_folder(folder, str(target))
    renamed = calls.place("rename", target)
    before = [Path(path) for kind, path in calls.seen[:renamed] if kind == "sync"]
    (aside,) = {path for path in before if path.name.endswith(".tmp")}
    inside = {str(path.relative_to(aside)) for path in before if path.is_relative_to(aside)}
    assert inside == {".", "a.txt", "deep", "deep/er", "deep/er/b.bin"}
    assert calls.place("sync", target.parent) > renamed
    assert deleted == [len(calls.seen)]
    first_rename = next(place for place, (kind, _) in enumerate(calls.seen) if kind == "rename")
    assert first_rename > calls.place("sync", aside), (
        "the old folder stays in place while the new one is written"
    )


@pytest.mark.fault
def test_a_disk_that_refuses_to_write_is_an_error_and_publishes_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    (tmp_path / "models").mkdir()
    with pytest.raises(StorageError, match="No space left"):
        storage.put_folder(folder, str(tmp_path / "models" / "model"))
    assert list((tmp_path / "models").iterdir()) == []
