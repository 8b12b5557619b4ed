"""How HDFS is addressed: name services, names that look like parts of a URL, and the way over HTTP."""

import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from io import FileIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from emberflow import storage
from emberflow._plan import deadlines
from emberflow.errors import StorageError
from emberflow.storage import outages
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


class FakeWriter(FileIO):
    """A file that takes bytes only: hdfs-native reads a view number by number, which is twenty times as slow."""

    def write(self, content: Any) -> int:
        assert type(content) is bytes
        return super().write(content)


class FakeClient:
    """hdfs-native's client on a local folder, with the exceptions that it raises."""

    folder: ClassVar[Path]
    last: ClassVar[tuple[str, dict[str, str]]]

    def __init__(self, url: str, settings: dict[str, str]) -> None:
        FakeClient.last = (url, settings)

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
        return FakeWriter(self._at(path), "wb")

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
    FakeClient.folder = tmp_path / "hdfs"
    FakeClient.folder.mkdir()
    monkeypatch.setattr("hdfs_native.fsspec.Client", FakeClient)
    monkeypatch.setattr(outages, "_known", set())
    monkeypatch.setattr(deadlines, "OUTAGE_POLL", 0.001)
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
    with storage.open_file(storage.join(fake_hdfs, "lines"), "wb") as file:
        file.write(b"1\n")
        file.write(b"2\n")
    with storage.open_file(storage.join(fake_hdfs, "lines")) as file:
        assert list(file) == [b"1\n", b"2\n"]
        assert file.seek(2) == 2
        assert file.read() == b"2\n"


@pytest.fixture
def settings_as_before() -> Iterator[None]:
    before = storage.current_settings()
    yield
    storage.apply_settings(before)


SAFE_MODE = partial(RuntimeError, "org.apache.hadoop.hdfs.server.namenode.SafeModeException: in safe mode.")
REFUSED = partial(OSError, "Connection refused (os error 111)")
DENIED = partial(PermissionError, "org.apache.hadoop.security.AccessControlException: Permission denied")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have the next calls of one kind fail, before or after they did their work."""

    def arrange(name: str, *errors: Callable[[], Exception], after: bool = False) -> list[Any]:
        left, real = list(errors), getattr(FakeClient, name)

        def call(*args: Any) -> Any:
            result = real(*args) if after or not left else None
            if left:
                raise left.pop(0)()
            return result

        monkeypatch.setattr(FakeClient, name, call)
        return left

    return arrange


def test_an_address_that_was_never_reached_is_tried_once(fake_hdfs: str, failing: Any) -> None:
    left = failing("get_file_info", REFUSED, REFUSED)
    with pytest.raises(StorageError, match="does not answer"):
        storage.exists(storage.join(fake_hdfs, "x"))
    assert len(left) == 1
    assert FakeClient.last[1]["dfs.client.failover.max.attempts"] == "4"


@pytest.mark.parametrize(
    "settings",
    [
        {"fs.defaultFS": "hdfs://Name:9000/"},
        {"dfs.nameservices": "other, Name", "dfs.ha.namenodes.Name": "a"},
    ],
)
def test_an_address_of_hadoops_settings_is_waited_for_from_the_first_contact(
    fake_hdfs: str, failing: Any, settings: dict[str, str], settings_as_before: None
) -> None:
    storage.apply_settings(storage.StorageSettings(hadoop=settings))
    left = failing("get_file_info", REFUSED, REFUSED)
    address = fake_hdfs if "fs.defaultFS" in settings else "hdfs://Name"
    assert not storage.exists(storage.join(address, "x"))
    assert not left


@pytest.mark.parametrize("call", ["mkdirs", "create", "rename", "get_file_info"])
@pytest.mark.parametrize("errors", [(SAFE_MODE,), (REFUSED, REFUSED, SAFE_MODE, SAFE_MODE)])
def test_a_name_node_that_starts_again_is_waited_for(
    fake_hdfs: str,
    folder: Path,
    failing: Any,
    call: str,
    errors: tuple[Callable[[], Exception], ...],
    caplog: pytest.LogCaptureFixture,
) -> None:
    target = storage.join(fake_hdfs, "models", "m")
    storage.put_folder(folder, target)
    (folder / "a.txt").write_text("other")
    left = failing(call, *errors)
    storage.put_folder(folder, target)
    assert not left
    assert storage.read_bytes(storage.join(target, "a.txt")) == b"other"
    assert storage.list_folder(storage.join(fake_hdfs, "models")) == [target]
    assert "Waiting for up to" in caplog.text


def test_a_rename_that_was_done_before_the_name_node_went_away_is_done(
    fake_hdfs: str, folder: Path, failing: Any
) -> None:
    target = storage.join(fake_hdfs, "m")
    storage.write_bytes(storage.join(fake_hdfs, "reached"), b"1")
    left = failing("rename", REFUSED, after=True)
    storage.put_folder(folder, target)
    assert not left
    assert storage.exists(storage.join(target, "a.txt"))


def test_a_rename_of_nothing_is_an_error_also_after_an_outage(fake_hdfs: str, failing: Any) -> None:
    storage.write_bytes(storage.join(fake_hdfs, "reached"), b"1")
    failing("rename", REFUSED)
    with pytest.raises(FileNotFoundError):
        storage.rename(storage.join(fake_hdfs, "none"), storage.join(fake_hdfs, "there"))


def test_an_outage_without_end_is_an_error(
    fake_hdfs: str, failing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "OUTAGE_TIMEOUT", 0.05)
    failing("mkdirs", *[SAFE_MODE] * 1000)
    with pytest.raises(StorageError, match="safe mode") as caught:
        storage.write_bytes(storage.join(fake_hdfs, "x"), b"1")
    assert caught.value.is_transient


def test_what_will_not_pass_is_an_error_at_once(fake_hdfs: str, failing: Any) -> None:
    left = failing("mkdirs", DENIED, DENIED)
    with pytest.raises(StorageError, match="may not do that"):
        storage.write_bytes(storage.join(fake_hdfs, "x"), b"1")
    assert len(left) == 1


def test_cleaning_up_after_an_outage_does_not_wait(
    fake_hdfs: str, folder: Path, failing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.write_bytes(storage.join(fake_hdfs, "reached"), b"1")
    monkeypatch.setattr(deadlines, "OUTAGE_TIMEOUT", 0.0)
    failing("create", SAFE_MODE)
    left = failing("delete", SAFE_MODE, SAFE_MODE)
    monkeypatch.setattr(deadlines, "OUTAGE_POLL", 60.0)  # the test would end in its timeout
    with pytest.raises(StorageError, match="safe mode"):
        storage.put_folder(folder, storage.join(fake_hdfs, "m"))
    assert len(left) == 1
