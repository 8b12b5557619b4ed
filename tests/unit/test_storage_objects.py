"""Folders on object stores: plain keys, a marker first and a manifest last, killed at each change."""

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from emberflow import storage
from emberflow.errors import StorageError
from emberflow.storage.object_folders import IN_PROGRESS, MANIFEST
from tests.unit.dying_store import DyingStore, KilledError

ENDLESS = 10**9


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def put(folder: Path, target: str, *, changes: int = ENDLESS, overwrite: bool = True) -> bool:
    """Publish a folder, killed before the given number of changes; tell whether it came to its end."""
    DyingStore.left = changes
    try:
        storage.put_folder(folder, target, overwrite=overwrite)
    except KilledError:
        return False
    finally:
        DyingStore.left = ENDLESS
    return True


def read(target: str, into: Path) -> dict[str, bytes] | None:
    """Return what a reader gets, or None if it is refused."""
    try:
        storage.get_folder(target, into / uuid.uuid4().hex)
    except StorageError:
        return None
    return files_of(max(into.iterdir(), key=lambda path: path.stat().st_mtime_ns))


@pytest.fixture
def target() -> str:
    return f"dying://{uuid.uuid4().hex}/models/model"


@pytest.fixture
def memory() -> str:
    return f"memory://{uuid.uuid4().hex}/models/model"


def test_others_find_plain_keys_at_the_path_itself(memory: str, folder: Path) -> None:
    storage.put_folder(folder, memory)
    names = {file.path[len(memory) + 1 :] for file in storage.list_files(memory)}
    assert names == {"a.txt", "deep/er/b.bin", MANIFEST}
    manifest = json.loads(storage.read_bytes(storage.join(memory, MANIFEST)))
    assert manifest["files"]["a.txt"] == {"size": 1, "crc32c": "c1d04330"}


@pytest.mark.fault
def test_a_new_folder_whose_program_is_killed_at_any_change_is_refused_until_it_is_published_again(
    target: str, folder: Path, tmp_path: Path
) -> None:
    into = tmp_path / "copies"
    changes = 0
    while not put(folder, f"{target}-{changes}", changes=changes):
        begun = f"{target}-{changes}"
        found = {file.path[len(begun) + 1 :] for file in storage.list_files(begun)}
        assert IN_PROGRESS in found or not changes
        assert not storage.is_complete(begun)
        assert read(begun, into) is None
        assert put(folder, begun, overwrite=False), "there is nothing yet to overwrite"
        assert read(begun, into) == files_of(folder)
        changes += 1
    assert changes == 5, "marker, two files, manifest, and the marker goes"


@pytest.mark.fault
def test_a_replacement_that_is_killed_at_any_change_leaves_the_old_folder_or_one_that_is_refused(
    folder: Path, tmp_path: Path
) -> None:
    into = tmp_path / "copies"
    old = files_of(folder)
    seen, changes, is_done = [], 0, False
    while not is_done:
        target = f"dying://{uuid.uuid4().hex}/models/model"
        (folder / "a.txt").write_text("a")
        assert put(folder, target)
        (folder / "a.txt").write_text("new")
        is_done = put(folder, target, changes=changes)
        found = read(target, into)
        assert found in (old, None, files_of(folder))
        seen.append({str(old): "old", str(None): "refused"}.get(str(found), "new"))
        if not is_done:
            assert put(folder, target), "the next one repairs it"
            assert read(target, into) == files_of(folder)
            if found is None:
                left = storage.list_folder(target.rpartition("/")[0])
                assert left == [target], "and leaves nothing beside it"
        changes += 1
    assert sorted(seen, key=["old", "refused", "new"].index) == seen, "each state once, in this order"
    assert {"old", "refused", "new"} == set(seen)


@pytest.mark.fault
def test_a_removal_that_is_killed_at_any_change_leaves_nothing_to_read(folder: Path, tmp_path: Path) -> None:
    changes = 0
    while True:
        target = f"dying://{uuid.uuid4().hex}/models/model"
        assert put(folder, target)
        DyingStore.left = changes
        try:
            storage.remove_folder(target, first="a.txt")
        except KilledError:
            assert read(target, tmp_path / "copies") == (files_of(folder) if changes == 0 else None)
        else:
            break
        finally:
            DyingStore.left = ENDLESS
        changes += 1
    assert storage.list_files(target) == []


def test_an_interrupted_replacement_says_where_the_new_files_are(
    memory: str, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    storage.put_folder(folder, memory)

    def broken(*_: Any, **__: Any) -> None:
        raise PermissionError("no copying")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "cp_file", broken)
        with pytest.raises(StorageError, match="no copying"):
            storage.put_folder(folder, memory)
    with pytest.raises(StorageError, match=r"interrupted; its new files are complete in memory://.*\.tmp"):
        storage.get_folder(memory, tmp_path / "copy")
    storage.put_folder(folder, memory, overwrite=False)
    storage.get_folder(memory, tmp_path / "copy")
    assert storage.list_folder(memory.rpartition("/")[0]) == [memory]


@pytest.mark.parametrize("staged", ["memory://kept", "memory://kept/.model.tmp", "", "../x"])
def test_a_marker_cannot_have_another_folder_deleted(memory: str, folder: Path, staged: str) -> None:
    storage.write_bytes("memory://kept/x", b"1")
    marker = json.dumps({"publication": "1", "files": staged}).encode()
    storage.write_bytes(storage.join(memory, IN_PROGRESS), marker)
    storage.put_folder(folder, memory)
    assert storage.exists("memory://kept/x")


@pytest.mark.fault
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda fs, path: fs.rm_file(f"{path}/a.txt"), "a.txt is missing"),
        (lambda fs, path: fs.pipe_file(f"{path}/a.txt", b"longer"), "has 6 bytes instead of 1"),
        (lambda fs, path: fs.pipe_file(f"{path}/a.txt", b"b"), "which has changed"),
        (lambda fs, path: fs.pipe_file(f"{path}/{IN_PROGRESS}", b"{}"), "not ended, or was interrupted"),
        (lambda fs, path: fs.pipe_file(f"{path}/{MANIFEST}", b"no json"), "storage failed"),
    ],
)
def test_a_folder_that_is_not_what_was_published_is_refused(
    memory: str, folder: Path, tmp_path: Path, change: Any, words: str
) -> None:
    storage.put_folder(folder, memory)
    change(*storage.file_system(memory))
    with pytest.raises(StorageError, match=words):
        storage.get_folder(memory, tmp_path / "copy")


def test_what_the_manifest_does_not_name_is_no_part_of_the_folder(
    memory: str, folder: Path, tmp_path: Path
) -> None:
    storage.put_folder(folder, memory)
    storage.write_bytes(storage.join(memory, "README"), b"by a person")
    storage.get_folder(memory, tmp_path / "copy")
    assert files_of(tmp_path / "copy") == files_of(folder)


def test_a_folder_that_was_never_ours_is_read_as_it_is_and_never_replaced(
    memory: str, folder: Path, tmp_path: Path
) -> None:
    storage.write_bytes(storage.join(memory, "theirs", "x"), b"1")
    assert storage.is_complete(memory)
    storage.get_folder(memory, tmp_path / "copy")
    assert files_of(tmp_path / "copy") == {"theirs/x": b"1"}
    with pytest.raises(StorageError, match="that another program wrote"):
        storage.put_folder(folder, memory)
    assert storage.read_bytes(storage.join(memory, "theirs", "x")) == b"1"


def test_a_part_of_an_incomplete_folder_is_refused_too(memory: str, folder: Path, tmp_path: Path) -> None:
    storage.put_folder(folder, memory)
    storage.get_folder(storage.join(memory, "deep"), tmp_path / "part")
    assert files_of(tmp_path / "part") == {"er/b.bin": files_of(folder)["deep/er/b.bin"]}
    storage.write_bytes(storage.join(memory, IN_PROGRESS), b"{}")
    assert not storage.is_complete(storage.join(memory, "deep"))
    with pytest.raises(StorageError, match="must be complete"), storage.reading_folder(memory + "/deep"):
        pass


@pytest.mark.fault
def test_a_folder_replaced_while_it_is_read_is_refused(memory: str, folder: Path) -> None:
    storage.put_folder(folder, memory)
    with pytest.raises(StorageError, match="while it was read"), storage.reading_folder(memory):
        storage.put_folder(folder, memory)


@pytest.mark.fault
def test_of_two_programs_that_publish_to_one_path_at_most_one_succeeds(
    memory: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.txt").write_text("b")
    real, begun = MemoryFileSystem.put_file, []

    def put_file(self: Any, source: str, to: str, *args: Any, **options: Any) -> None:
        real(self, source, to, *args, **options)
        if not begun:
            begun.append(True)
            storage.put_folder(other, memory)

    monkeypatch.setattr(MemoryFileSystem, "put_file", put_file)
    with pytest.raises(StorageError, match=r"one program.*another has begun"):
        storage.put_folder(folder, memory)
    monkeypatch.undo()
    assert read(memory, tmp_path / "copies") in (None, {"a.txt": b"b"}), "never files of both"
