"""How HDFS is addressed: name services, names that look like parts of a URL, and the way over HTTP."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from emberflow import storage
from emberflow.errors import StorageError
from emberflow.storage.location import locate

PAIR = {
    "dfs.nameservices": "Two",
    "dfs.ha.namenodes.Two": "a, b",
    "dfs.namenode.http-address.Two.a": "one:9870",
    "dfs.namenode.http-address.Two.b": "other:9870",
}


@pytest.mark.parametrize(
    ("url", "host", "port", "path"),
    [
        ("hdfs://Cluster1/x", "Cluster1", None, "/x"),
        ("hdfs://user@name:9000/a/b/", "name", 9000, "/a/b"),
        ("hdfs:///x", None, None, "/x"),
        ("hdfs:/x", None, None, "/x"),
        ("viewfs://Mounts/a?b#c", "Mounts", None, "/a?b#c"),
    ],
)
def test_an_address_keeps_its_letters(
    url: str, host: str | None, port: int | None, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("hdfs_native")
    from emberflow.storage import hdfs

    monkeypatch.setattr("hdfs_native.fsspec.Client", lambda *_: None)
    location = locate(url)
    assert isinstance(location.fs, hdfs.Hdfs | hdfs.Viewfs)
    assert (location.fs.host, location.fs.port, location.path) == (host, port, path)
    assert location.fs._strip_protocol(url) == path
    assert location.named(path) == url.rstrip("/")


@pytest.mark.parametrize(
    ("authority", "settings", "addresses"),
    [
        ("Two", PAIR, ["one:9870", "other:9870"]),
        ("name:9000", {"dfs.namenode.http-address": "0.0.0.0:9870"}, ["name:9870"]),
        ("name:9000", {"dfs.namenode.http-address": "web:80"}, ["web:80"]),
        ("name:9000", {}, []),
    ],
)
def test_where_a_name_node_answers_over_http(
    authority: str, settings: dict[str, str], addresses: list[str]
) -> None:
    pytest.importorskip("requests")
    from emberflow.storage.webhdfs import _addresses

    assert list(_addresses(authority, settings)) == addresses


def test_without_driver_and_web_address_the_driver_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "emberflow.storage.hdfs", raising=False)
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(StorageError) as caught:
        storage.exists("hdfs://name:9000/x")
    assert caught.value.fix == "pip install 'emberflow[hdfs]'"


def test_a_web_address_is_opened_over_http() -> None:
    pytest.importorskip("requests")
    location = locate("webhdfs://name:9870/x")
    assert type(location.fs).__name__ == "WebHdfs"
    assert location.fs.url == "http://name:9870/webhdfs/v1"
    assert location.named("/x/y") == "webhdfs://name:9870/x/y"
    assert location.protocol in storage.RENAMING


class FakeClient:
    """hdfs-native's client on a local folder, with the exceptions that it raises."""

    folder: ClassVar[Path]
    last: ClassVar[tuple[str, dict[str, str]]]

    def __init__(self, url: str, settings: dict[str, str]) -> None:
        FakeClient.last = (url, settings)
        if "gone" in url:
            raise OSError("Connection refused (os error 111)")

    def _at(self, path: str) -> Path:
        return self.folder / path.strip("/")

    def get_file_info(self, path: str) -> Any:
        if not self._at(path).exists():
            raise FileNotFoundError(path)
        found = self._at(path).stat()
        return SimpleNamespace(
            path=path, isdir=self._at(path).is_dir(), length=found.st_size, permission=0, owner="", group="",
            modification_time=int(found.st_mtime * 1000), access_time=0,
        )  # fmt: skip

    def list_status(self, path: str, recursive: bool) -> Iterator[Any]:
        self.get_file_info(path)
        for each in sorted(self._at(path).rglob("*") if recursive else self._at(path).iterdir()):
            yield self.get_file_info("/" + str(each.relative_to(self.folder)))

    def create(self, path: str, write_options: Any) -> Any:
        assert write_options.overwrite
        return self._at(path).open("wb", buffering=0)

    def read(self, path: str) -> Any:
        content = self._at(path).read_bytes()
        hdfs_native = pytest.importorskip("hdfs_native")
        inner = SimpleNamespace(file_length=lambda: len(content), at=0)
        inner.seek = lambda at: setattr(inner, "at", at)
        inner.tell = lambda: inner.at

        def take(size: int) -> bytes:
            block = content[inner.at :] if size < 0 else content[inner.at : inner.at + size]
            inner.at += len(block)
            return block

        inner.read = take
        inner.read_range_stream = lambda start, size: iter(
            [content[start : start + 1], content[start + 1 : size]]
        )
        return hdfs_native.FileReader(inner)

    def mkdirs(self, path: str, permission: int, create_parent: bool) -> None:
        self._at(path).mkdir(parents=True, exist_ok=True)

    def rename(self, source: str, target: str, overwrite: bool) -> None:
        self._at(source).rename(self._at(target))

    def delete(self, path: str, recursive: bool) -> bool:
        if self._at(path).is_dir():
            shutil.rmtree(self._at(path))
        return True


@pytest.fixture
def fake_hdfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    pytest.importorskip("hdfs_native")
    from emberflow.storage import hdfs

    FakeClient.folder = tmp_path / "hdfs"
    FakeClient.folder.mkdir()
    monkeypatch.setattr("hdfs_native.fsspec.Client", FakeClient)
    monkeypatch.setattr(hdfs, "Client", FakeClient)
    monkeypatch.setattr(hdfs, "_reached", set())
    return "hdfs://Name:9000"


def test_files_and_folders_go_through_the_driver(fake_hdfs: str, folder: Path, tmp_path: Path) -> None:
    target = storage.join(fake_hdfs, "models", "m")
    storage.put_folder(folder, target)
    storage.get_folder(target, tmp_path / "back")
    assert (tmp_path / "back" / "deep" / "er" / "b.bin").read_bytes() == b"\x00\xff"
    assert [file.path for file in storage.list_files(target)] == [
        target + "/a.txt",
        target + "/deep/er/b.bin",
    ]
    assert storage.list_files(storage.join(fake_hdfs, "none")) == []
    storage.write_bytes(storage.join(fake_hdfs, "lines"), b"1\n2\n")
    with storage.open_file(storage.join(fake_hdfs, "lines")) as file:
        assert list(file) == [b"1\n", b"2\n"]
        assert file.seek(2) == 2
        assert file.read() == b"2\n"


def test_an_address_is_tried_for_seconds_before_it_was_ever_reached_and_then_for_longer(
    fake_hdfs: str,
) -> None:
    from emberflow.storage.hdfs import _ATTEMPTS

    with pytest.raises(StorageError, match="does not answer"):
        storage.exists("hdfs://gone:1/x")
    assert not storage.exists(storage.join(fake_hdfs, "x"))
    assert FakeClient.last == (fake_hdfs, {_ATTEMPTS: "4"})
    assert not storage.exists(storage.join(fake_hdfs, "y"))
    assert FakeClient.last == (fake_hdfs, {})
