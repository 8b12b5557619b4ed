"""The storage layer on local disk, which renames, and on fsspec's memory, taken as an object store."""

import importlib
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from emberflow import storage
from emberflow.errors import StorageError
from emberflow.storage import files
from emberflow.storage.location import locate
from emberflow.storage.object_folders import MANIFEST


@pytest.fixture(params=["local", "file-url", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {
        "local": str(tmp_path / "root"),
        "file-url": f"file:{tmp_path}/root",
        "memory": f"memory://{uuid.uuid4().hex}",
    }[request.param]


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_file_is_written_listed_read_and_deleted(root: str) -> None:
    path = storage.join(root, "x", "y.bin")
    storage.write_bytes(path, b"12345")
    assert storage.exists(path)
    assert storage.is_folder(storage.join(root, "x"))
    assert storage.read_bytes(path) == b"12345"
    assert storage.list_folder(root) == [storage.join(root, "x")]
    (found,) = storage.list_files(root)
    assert (found.path, found.size) == (path, 5)
    assert found.modified > 1e9
    assert storage.list_files(path) == [found]
    storage.delete(root)
    storage.delete(root)
    assert not storage.exists(path)
    assert storage.list_files(root) == []
    assert storage.list_folder(root) == []


def test_listing_one_level_leaves_out_what_is_deeper(root: str) -> None:
    for name in ("a", "b/c"):
        storage.write_bytes(storage.join(root, name), b"")
    assert [f.path for f in storage.list_files(root, recursive=False)] == [storage.join(root, "a")]
    assert storage.list_folder(root) == [storage.join(root, "a"), storage.join(root, "b")]


def test_glob_gives_paths_in_the_form_that_went_in(root: str) -> None:
    for name in ("p1/a.tfrecord", "p2/b.tfrecord", "p2/c.txt"):
        storage.write_bytes(storage.join(root, name), b"")
    found = storage.glob(storage.join(root, "*", "*.tfrecord"))
    assert found == [storage.join(root, "p1/a.tfrecord"), storage.join(root, "p2/b.tfrecord")]


def test_a_folder_goes_there_and_back(root: str, folder: Path, tmp_path: Path) -> None:
    target = storage.join(root, "model")
    storage.put_folder(folder, target)
    storage.get_folder(target, tmp_path / "back")
    assert files_of(tmp_path / "back") == files_of(folder)
    assert storage.read_bytes(storage.join(target, "a.txt")) == b"a"


def test_overwriting_replaces_the_whole_folder_and_leaves_nothing_else(
    root: str, folder: Path, tmp_path: Path
) -> None:
    target = storage.join(root, "model")
    storage.put_folder(folder, target)
    (folder / "a.txt").unlink()
    (folder / "new.txt").write_text("new")
    storage.put_folder(folder, target)
    storage.get_folder(target, tmp_path / "back")
    assert set(files_of(tmp_path / "back")) == {"new.txt", "deep/er/b.bin"}
    assert storage.list_folder(root) == [target]
    stored = [f.path for f in storage.list_files(root) if not f.path.endswith(MANIFEST)]
    assert len(stored) == 2, "the files of the first folder are gone"


def test_without_overwrite_an_existing_folder_is_refused(root: str, folder: Path) -> None:
    target = storage.join(root, "model")
    storage.put_folder(folder, target, overwrite=False)
    with pytest.raises(StorageError, match=r"Received: path="):
        storage.put_folder(folder, target, overwrite=False)


@pytest.mark.fault
def test_a_failed_upload_leaves_the_old_folder_and_no_rest(
    root: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = storage.join(root, "model")
    storage.put_folder(folder, target)
    before = files_of(folder)
    (folder / "a.txt").write_text("changed")

    from fsspec.implementations.local import LocalFileSystem
    from fsspec.implementations.memory import MemoryFileSystem

    for kind in (LocalFileSystem, MemoryFileSystem):
        real = kind.put_file

        def broken(self: Any, source: str, to: str, *args: Any, real: Any = real, **kwargs: Any) -> Any:
            if to.endswith("b.bin"):
                raise PermissionError("the disk is full")
            return real(self, source, to, *args, **kwargs)

        monkeypatch.setattr(kind, "put_file", broken)
    with pytest.raises(StorageError, match="the disk is full"):
        storage.put_folder(folder, target)
    monkeypatch.undo()

    storage.get_folder(target, tmp_path / "back")
    assert files_of(tmp_path / "back") == before
    assert storage.list_folder(root) == [target]
    stored = [f for f in storage.list_files(root) if not f.path.endswith(MANIFEST)]
    assert len(stored) == 2


def test_a_file_whose_rename_fails_leaves_the_old_content_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "claim"
    storage.write_bytes(str(target), b"old")

    def broken(source: str, to: str) -> None:
        raise StorageError("the server went away", fix="wait")

    monkeypatch.setattr(files, "rename", broken)
    with pytest.raises(StorageError, match="went away"):
        storage.write_bytes(str(target), b"new")
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.fault
def test_a_failed_rename_brings_the_old_folder_back(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = str(tmp_path / "root" / "model")
    storage.put_folder(folder, target)
    real = storage.rename

    def broken(source: str, to: str) -> None:
        if source.endswith(".tmp"):
            raise StorageError("the server went away", fix="wait")
        real(source, to)

    monkeypatch.setattr(files, "rename", broken)
    with pytest.raises(StorageError, match="went away"):
        storage.put_folder(folder, target)
    assert storage.list_folder(str(tmp_path / "root")) == [target]
    assert files_of(Path(target)) == files_of(folder)


def test_a_missing_folder_is_a_clear_error(root: str, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"Expected a folder with files\. Received: path="):
        storage.get_folder(storage.join(root, "none"), tmp_path / "back")
    with pytest.raises(FileNotFoundError):
        storage.read_bytes(storage.join(root, "none"))


@pytest.mark.parametrize(
    ("path", "command", "module"),
    [
        ("s3://bucket/x", "pip install 'emberflow[s3]'", "s3fs"),
        ("s3a://bucket/x", "pip install 'emberflow[s3]'", "s3fs"),
        ("gs://bucket/x", "pip install gcsfs", "gcsfs"),
        ("abfss://box@account/x", "pip install adlfs", "adlfs"),
        ("hdfs://name:9000/x", "pip install 'emberflow[hdfs]'", "hdfs_native"),
    ],
)
def test_a_missing_driver_names_the_command(
    path: str, command: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    protocol = storage.protocol_of(path)
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    # Another test may have loaded the driver.
    monkeypatch.delitem(sys.modules, "emberflow.storage.hdfs", raising=False)
    monkeypatch.delitem(importlib.import_module("fsspec.registry")._registry, protocol, raising=False)
    with pytest.raises(StorageError) as caught:
        storage.exists(path)
    assert caught.value.fix == command
    assert f"Received: path={path!r}" in str(caught.value)


def test_an_unknown_protocol_is_a_storage_error() -> None:
    with pytest.raises(StorageError, match="nosuch"):
        storage.exists("nosuch://x/y")


def test_an_hdfs_client_is_never_cached() -> None:
    pytest.importorskip("hdfs_native")
    first = locate("hdfs://name:9000/x")
    assert first.named("/x/y") == "hdfs://name:9000/x/y"
    assert locate("hdfs://name:9000/x").fs is not first.fs


@pytest.mark.parametrize(
    ("base", "parts", "whole"),
    [
        ("/a", ("b",), "/a/b"),
        ("/", ("b",), "/b"),
        ("a/", ("/b/", "c"), "a/b/c"),
        ("memory://", ("b",), "memory://b"),
        ("s3://b/", ("k=1",), "s3://b/k=1"),
    ],
)
def test_join(base: str, parts: tuple[str, ...], whole: str) -> None:
    assert storage.join(base, *parts) == whole


@pytest.mark.fault
@pytest.mark.parametrize("key", ["../../evil.txt", "deep/../../../evil.txt"])
def test_a_stored_name_that_leads_out_of_the_copy_is_refused_before_anything_is_copied(
    key: str, tmp_path: Path
) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    target = f"memory://{uuid.uuid4().hex}"
    fs, root = storage.file_system(target)
    assert isinstance(fs, MemoryFileSystem)
    fs.pipe_file(f"{root}/good.txt", b"good")
    fs.pipe_file(f"{root}/{key}", b"evil")  # an object store takes any key
    with pytest.raises(StorageError, match=r"must stay inside it.*evil\.txt"):
        storage.get_folder(target, tmp_path / "a" / "b" / "copy")
    assert list(tmp_path.rglob("evil.txt")) == []
    assert not (tmp_path / "a").exists()


def test_a_new_folder_is_at_the_path_itself_and_never_replaces_another(
    root: str, folder: Path, tmp_path: Path
) -> None:
    target = storage.join(root, "model")
    storage.put_folder(folder, target, overwrite=False, last="a.txt")
    assert storage.read_bytes(storage.join(target, "a.txt")) == b"a"
    storage.get_folder(target, tmp_path / "back")
    assert files_of(tmp_path / "back") == files_of(folder)
    (folder / "a.txt").write_text("other")
    with pytest.raises(StorageError, match="which exists"):
        storage.put_folder(folder, target, overwrite=False, last="a.txt")
    assert storage.read_bytes(storage.join(target, "a.txt")) == b"a"
    assert storage.list_folder(root) == [target]


def test_two_folders_for_one_local_path_never_mix(folder: Path, tmp_path: Path) -> None:
    """The rename itself refuses: the other folder may appear after every check."""
    target = tmp_path / "model"
    target.mkdir()
    (target / "theirs").write_text("theirs")
    aside = tmp_path / "aside"
    folder.rename(aside)
    with pytest.raises(StorageError):
        storage.rename(str(aside), str(target))
    assert files_of(target) == {"theirs": b"theirs"}
