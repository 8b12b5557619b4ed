"""Numbered versions of a model: complete or absent, in order, never over another's."""

import itertools
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberflow import storage
from emberflow._score.model_versions import is_model, model_at, newest_version, versions_in
from emberflow.errors import StorageError
from emberflow.ml.publishing import latest_version, publish_version
from tests.unit.dying_store import DyingStore, KilledError

FILES = {"saved_model.pb", "variables/variables.index", "model.keras", "metadata/part-00000"}


@pytest.fixture(params=["local", "file-url", "memory"])
def models(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    kinds = {
        "local": str(tmp_path / "models"),
        "file-url": f"file:{tmp_path}/models",
        "memory": f"memory://{uuid.uuid4().hex}",
    }
    yield kinds[request.param]
    storage.delete(kinds["memory"])


def version(tmp_path: Path, content: str) -> Path:
    """Return a local folder with the files of a version, all with this content."""
    folder = tmp_path / uuid.uuid4().hex
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def publish(models: str, number: int, tmp_path: Path, *, origin: str = "", keep: int = 5) -> None:
    folder = version(tmp_path, f"{number} {origin}")
    publish_version(folder, models, number, origin=origin or str(number), keep=keep)


def contents(path: str) -> set[bytes]:
    """Return the different contents of a version's files; a complete version has one."""
    listed = [
        file for file in storage.list_files(path) if not file.path.endswith(("/origin", "/_manifest.json"))
    ]
    assert len(listed) == len(FILES)
    return {storage.read_bytes(file.path) for file in listed}


def test_a_folder_without_versions_has_none(models: str) -> None:
    assert latest_version(models) == 0
    assert newest_version(models) is None
    assert model_at(models) == models


def test_the_newest_version_is_found_by_its_number(models: str, tmp_path: Path) -> None:
    for number in (8, 9, 10):
        publish(models, number, tmp_path)
        assert latest_version(models) == number
    assert model_at(models) == storage.join(models, "10")
    assert model_at(storage.join(models, "9")) == storage.join(models, "9")
    assert contents(storage.join(models, "9")) == {b"9 "}


def test_old_versions_are_removed_and_nothing_else(models: str, tmp_path: Path) -> None:
    storage.write_bytes(storage.join(models, "README"), b"mine")
    for number in range(1, 8):
        publish(models, number, tmp_path, keep=3)
    assert [each.number for each in versions_in(models)] == [5, 6, 7]
    assert len(storage.list_folder(models)) == 4


def test_the_same_version_again_changes_nothing(models: str, tmp_path: Path) -> None:
    publish(models, 1, tmp_path, origin="query 7")
    publish_version(version(tmp_path, "other"), models, 1, origin="query 7", keep=5)
    assert contents(storage.join(models, "1")) == {b"1 query 7"}


@pytest.mark.parametrize("number", [1, 2])
def test_another_driver_s_version_is_never_replaced(models: str, number: int, tmp_path: Path) -> None:
    publish(models, 2, tmp_path, origin="theirs")
    with pytest.raises(StorageError, match=f"version {number} .* version 2 is another"):
        publish(models, number, tmp_path, origin="ours")
    assert contents(storage.join(models, "2")) == {b"2 theirs"}
    assert [each.number for each in versions_in(models)] == [2]


def test_publishers_of_one_number_at_the_same_time_leave_one_whole_version(tmp_path: Path) -> None:
    models = str(tmp_path / "models")
    barrier = threading.Barrier(4, timeout=30)
    failed: list[StorageError] = []

    def publish_at_once(name: str) -> None:
        folder = version(tmp_path, name)
        barrier.wait()
        try:
            publish_version(folder, models, 1, origin=name, keep=5)
        except StorageError as error:
            failed.append(error)

    threads = [threading.Thread(target=publish_at_once, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(failed) == 3
    assert len(contents(storage.join(models, "1"))) == 1
    assert storage.list_folder(models) == [storage.join(models, "1")]


@pytest.mark.fault
def test_a_publisher_killed_at_any_change_leaves_a_whole_version_or_none(tmp_path: Path) -> None:
    seen = set()
    for changes in itertools.count():
        models = f"dying://{uuid.uuid4().hex}"
        DyingStore.left = 10_000
        for number in (1, 2):
            publish(models, number, tmp_path, keep=2)
        DyingStore.left = changes
        try:
            publish(models, 3, tmp_path, keep=2)
        except KilledError:
            finished = False
        else:
            finished = True
        DyingStore.left = 10_000
        newest = newest_version(models)
        assert newest is not None
        assert contents(newest.path) == {f"{newest.number} ".encode()}
        seen.add((newest.number, finished))
        publish(models, 3, tmp_path, keep=2)  # the next driver does it again
        assert latest_version(models) == 3
        assert [each.number for each in versions_in(models) if is_model(each.path)] == [2, 3]
        if finished:
            break
    assert seen == {(2, False), (3, False), (3, True)}


def test_what_a_killed_publisher_left_on_disk_is_removed_later(tmp_path: Path) -> None:
    models = tmp_path / "models"
    left = models / f".1.{'0' * 32}.tmp"
    left.mkdir(parents=True)
    (left / "saved_model.pb").write_text("half")
    assert latest_version(str(models)) == 0
    publish(str(models), 2, tmp_path)
    assert storage.list_folder(str(models)) == [str(models / "2")]
