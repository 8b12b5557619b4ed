"""The storage layer on a real HDFS: what goes up and comes down, and what each fault tells."""

import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from emberflow import storage
from emberflow._plan import deadlines
from emberflow.errors import StorageError
from emberflow.local.hadoop import LocalHadoop
from emberflow.storage.failures import FAILURES
from emberflow.storage.location import locate

ADMIN = "org.apache.hadoop.hdfs.tools.DFSAdmin"


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    for number in range(6):
        (source / f"{number}.bin").write_bytes(bytes([number]) * (2 << 20))
    (source / "deep" / "what?#.txt").write_text("odd name")
    (source / "empty").touch()
    return source


@pytest.fixture
def settings_as_before() -> Iterator[None]:
    before = storage.current_settings()
    yield
    storage.apply_settings(before)


@pytest.fixture
def root(hdfs: LocalHadoop) -> str:
    return storage.join(hdfs.default_fs, hdfs.home, uuid.uuid4().hex)


def check_there_and_back(root: str, folder: Path, back: Path) -> None:
    target = storage.join(root, "model")
    storage.put_folder(folder, target)
    storage.get_folder(target, back)
    assert files_of(back) == files_of(folder)
    (folder / "0.bin").write_text("other")
    storage.put_folder(folder, target)
    assert storage.read_bytes(storage.join(target, "0.bin")) == b"other"
    assert storage.list_folder(root) == [target], "nothing is left beside it"
    with pytest.raises(StorageError, match="which exists"):
        storage.put_folder(folder, target, overwrite=False)
    assert len(storage.glob(storage.join(target, "?.bin"))) == 6
    sizes = {file.path: file.size for file in storage.list_files(target)}
    assert sizes[storage.join(target, "1.bin")] == 2 << 20
    assert all(file.modified > 1e9 for file in storage.list_files(target))
    storage.write_bytes(storage.join(root, "claim"), b"1")
    storage.write_bytes(storage.join(root, "claim"), b"2\n3\n")
    with storage.open_file(storage.join(root, "claim")) as file:
        assert list(file) == [b"2\n", b"3\n"]
    storage.remove_folder(target)
    storage.delete(root)
    assert not storage.exists(root)


def test_a_folder_goes_to_hdfs_and_back(root: str, folder: Path, tmp_path: Path) -> None:
    check_there_and_back(root, folder, tmp_path / "back")


@pytest.mark.full
def test_without_its_driver_hdfs_is_reached_over_http(
    hdfs: LocalHadoop,
    root: str,
    folder: Path,
    tmp_path: Path,
    settings_as_before: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = hdfs.page.removeprefix("http://")
    storage.apply_settings(storage.StorageSettings(hadoop={"dfs.namenode.http-address": page}))
    monkeypatch.delitem(sys.modules, "emberflow.storage.hdfs", raising=False)
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    assert type(locate(root).fs).__name__ == "WebHdfs"
    check_there_and_back(root, folder, tmp_path / "back")
    with pytest.raises(FileNotFoundError):
        storage.read_bytes(storage.join(root, "none"))


@pytest.mark.full
def test_a_name_service_is_reached_through_its_settings(
    hdfs: LocalHadoop, folder: Path, tmp_path: Path, settings_as_before: None
) -> None:
    """The first of its two NameNodes does not answer."""
    live = hdfs.default_fs.removeprefix("hdfs://")
    names = {
        "dfs.nameservices": "Cluster1",
        "dfs.ha.namenodes.Cluster1": "a,b",
        "dfs.namenode.rpc-address.Cluster1.a": "127.0.0.1:1",
        "dfs.namenode.rpc-address.Cluster1.b": live,
    }
    storage.apply_settings(storage.StorageSettings(hadoop=names))
    check_there_and_back(f"hdfs://Cluster1{hdfs.home}/{uuid.uuid4().hex}", folder, tmp_path / "back")


@pytest.mark.full
def test_a_mount_table_leads_to_hdfs(
    hdfs: LocalHadoop, folder: Path, tmp_path: Path, settings_as_before: None
) -> None:
    table = "fs.viewfs.mounttable.Mounts"
    mounts = {f"{table}.link./data": f"{hdfs.default_fs}{hdfs.home}"}
    target = f"viewfs://Mounts/data/{uuid.uuid4().hex}"
    storage.apply_settings(storage.StorageSettings(hadoop=mounts))
    with pytest.raises(StorageError) as caught:
        storage.exists(target)
    assert "linkFallback" in (caught.value.fix or "")
    storage.apply_settings(
        storage.StorageSettings(hadoop=mounts | {f"{table}.linkFallback": hdfs.default_fs})
    )
    check_there_and_back(target, folder, tmp_path / "back")


def failing(target: str, folder: Path, cause: str) -> None:
    """Publishing fails for a cause, with its remedy and the path, and leaves nothing."""
    with pytest.raises(StorageError) as caught:
        storage.put_folder(folder, target)
    assert caught.value.fix == FAILURES[cause].fix, str(caught.value)
    assert caught.value.is_transient is FAILURES[cause].may_pass
    assert target in str(caught.value)


@pytest.mark.full
@pytest.mark.fault
def test_a_folder_of_another_user_is_refused(
    hdfs: LocalHadoop, root: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.write_bytes(storage.join(root, "mine"), b"1")
    monkeypatch.setenv("HADOOP_USER_NAME", "somebody")
    failing(storage.join(root, "model"), folder, "denied")
    monkeypatch.undo()
    assert storage.list_folder(root) == [storage.join(root, "mine")]


@pytest.mark.full
@pytest.mark.fault
@pytest.mark.parametrize("quota", [("-setQuota", "4"), ("-setSpaceQuota", "1m")])
def test_a_quota_of_hdfs_is_named(hdfs: LocalHadoop, root: str, folder: Path, quota: tuple[str, str]) -> None:
    storage.write_bytes(storage.join(root, "old"), b"1")
    inside = root.removeprefix(hdfs.default_fs)
    assert hdfs.run_command(ADMIN, *quota, inside).code == 0
    failing(storage.join(root, "model"), folder, "quota")
    assert storage.list_folder(root) == [storage.join(root, "old")], "no half folder"


@pytest.mark.full
@pytest.mark.fault
def test_safe_mode_without_end_is_named(
    hdfs: LocalHadoop, root: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = storage.join(root, "model")
    storage.put_folder(folder, target)
    monkeypatch.setattr(deadlines, "OUTAGE_TIMEOUT", 3.0)
    assert hdfs.run_command(ADMIN, "-safemode", "enter").code == 0
    try:
        failing(target, folder, "safe_mode")
        storage.get_folder(target, tmp_path / "back")
    finally:
        assert hdfs.run_command(ADMIN, "-safemode", "leave").code == 0
    assert files_of(tmp_path / "back") == files_of(folder)


@pytest.mark.full
@pytest.mark.fault
def test_a_file_in_place_of_a_folder_is_named(root: str, folder: Path) -> None:
    storage.write_bytes(storage.join(root, "file"), b"1")
    failing(storage.join(root, "file", "model"), folder, "not_a_folder")


DIES = """
import itertools, os, signal, sys
from emberflow import storage
from emberflow.storage.hdfs import Hdfs

real, begun = Hdfs.put_file, itertools.count(1)

def put_file(self, *args):
    if next(begun) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    real(self, *args)

Hdfs.put_file = put_file
storage.put_folder(sys.argv[1], sys.argv[2])
"""


@pytest.mark.full
@pytest.mark.fault
def test_an_upload_whose_program_is_killed_leaves_the_old_folder(
    root: str, folder: Path, tmp_path: Path
) -> None:
    target = storage.join(root, "model")
    storage.put_folder(folder, target)
    before = files_of(folder)
    (folder / "0.bin").write_text("other")
    done = subprocess.run([sys.executable, "-c", DIES, str(folder), target], check=False)
    assert done.returncode == -signal.SIGKILL
    storage.get_folder(target, tmp_path / "back")
    assert files_of(tmp_path / "back") == before
    storage.put_folder(folder, target)
    assert storage.read_bytes(storage.join(target, "0.bin")) == b"other"
    hidden = [path for path in storage.list_folder(root) if path != target]
    assert all(path.startswith(storage.join(root, ".model.")) for path in hidden)


@pytest.mark.full
@pytest.mark.fault
@pytest.mark.parametrize("address", ["127.0.0.1:1", "no-such-host.invalid:8020"])
def test_an_address_without_a_name_node_is_named(address: str, folder: Path) -> None:
    began = time.monotonic()
    failing(f"hdfs://{address}/model", folder, "unreachable")
    assert time.monotonic() - began < deadlines.OUTAGE_TIMEOUT / 4, "it waited as for an HDFS that was there"


@pytest.fixture
def during_upload(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have something done once, when the third file of an upload begins."""
    from emberflow.storage.hdfs import Hdfs

    def arrange(do: Any) -> None:
        real, begun = Hdfs.put_file, []

        def put_file(self: Any, *args: Any, **options: Any) -> None:
            begun.append(args)
            if len(begun) == 3:
                do()
            real(self, *args, **options)

        monkeypatch.setattr(Hdfs, "put_file", put_file)

    return arrange


@pytest.mark.full
@pytest.mark.fault
def test_a_data_node_stopped_during_an_upload_is_named_and_leaves_the_old_folder(
    hdfs: LocalHadoop,
    root: str,
    folder: Path,
    tmp_path: Path,
    during_upload: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = storage.join(root, "model")
    storage.put_folder(folder, target)
    before = files_of(folder)
    (folder / "0.bin").write_text("other")
    during_upload(hdfs.stop_data_node)
    monkeypatch.setattr(deadlines, "OUTAGE_TIMEOUT", 3.0)
    try:
        failing(target, folder, "no_data_node")
    finally:
        monkeypatch.undo()
        hdfs.start_data_node()
    assert storage.list_folder(root) == [target]
    storage.get_folder(target, tmp_path / "back")
    assert files_of(tmp_path / "back") == before
    storage.put_folder(folder, target)
    assert storage.read_bytes(storage.join(target, "0.bin")) == b"other"


def check_outlasting(
    root: str,
    folder: Path,
    back: Path,
    during_upload: Any,
    begin: Callable[[], object],
    end: Callable[[], object],
) -> None:
    """A folder replaces another during an outage, which ends after some time: it is there, whole."""
    target = storage.join(root, "model")
    storage.put_folder(folder, target)
    (folder / "0.bin").write_text("other")
    ended: list[Future[object]] = []

    def outage() -> None:
        begin()
        ended.append(pool.submit(end))

    with ThreadPoolExecutor(1) as pool:
        during_upload(outage)
        storage.put_folder(folder, target)
        ended[0].result()
    assert storage.list_folder(root) == [target]
    storage.get_folder(target, back)
    assert files_of(back) == files_of(folder)


@pytest.mark.full
@pytest.mark.fault
def test_an_upload_outlasts_a_data_node_that_starts_again(
    hdfs: LocalHadoop, root: str, folder: Path, tmp_path: Path, during_upload: Any
) -> None:
    check_outlasting(
        root, folder, tmp_path / "back", during_upload, hdfs.stop_data_node, hdfs.start_data_node
    )


@pytest.mark.full
@pytest.mark.fault
def test_an_upload_outlasts_a_name_node_that_starts_again(
    hdfs: LocalHadoop, root: str, folder: Path, tmp_path: Path, during_upload: Any
) -> None:
    """It is killed while files are written, and in safe mode until its data node has reported its blocks."""
    check_outlasting(
        root, folder, tmp_path / "back", during_upload, hdfs.stop_name_node, hdfs.start_name_node
    )


@pytest.mark.full
@pytest.mark.fault
def test_an_upload_outlasts_safe_mode(
    hdfs: LocalHadoop, root: str, folder: Path, tmp_path: Path, during_upload: Any
) -> None:
    def safe_mode(state: str) -> None:
        assert hdfs.run_command(ADMIN, "-safemode", state).code == 0

    check_outlasting(
        root, folder, tmp_path / "back", during_upload, lambda: safe_mode("enter"), lambda: safe_mode("leave")
    )
