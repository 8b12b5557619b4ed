"""Which URL a path means: Spark's rules, on each kind of session, and the settings that go with them."""

import os
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emberflow import storage
from emberflow._driver import hadoop_configuration, paths, storage_settings
from emberflow._driver.paths import path_rules_of, resolve_path, with_resolved_paths
from emberflow._driver.row_routing import read_data, with_resolved_files
from emberflow._driver.storage_settings import storage_settings_of
from emberflow._feed.parquet import Parquet
from emberflow._plan.path_rules import PathRules
from emberflow.config import RunConfig
from emberflow.errors import ConfigError
from emberflow.storage import StorageSettings, apply_settings, current_settings
from emberflow.tfrecord.tfrecords import TFRecords

HDFS = PathRules(default_fs="hdfs://host:8020", home="/user/ann")
LOCAL = PathRules(default_fs="file:///", home="/work")
SETTINGS: dict[str, str] = {}


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.setenv("HADOOP_USER_NAME", "ann")  # put back afterwards, whatever is applied meanwhile
    before = current_settings()
    yield
    apply_settings(before)


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("/data/x", "hdfs://host:8020/data/x"),
        ("data/x", "hdfs://host:8020/user/ann/data/x"),
        (".", "hdfs://host:8020/user/ann"),
        ("/", "hdfs://host:8020/"),
        ("../bob/x", "hdfs://host:8020/user/bob/x"),
        ("/data//x/", "hdfs://host:8020/data/x"),
        ("./x/", "hdfs://host:8020/user/ann/x"),
        ("~/x", "hdfs://host:8020/user/ann/~/x"),
        ("/day/10:30:00/x", "hdfs://host:8020/day/10:30:00/x"),
        ("/a%20b/c d/ü", "hdfs://host:8020/a%20b/c d/ü"),
        ("/data/{a,b}-[0-9]?/*.parquet", "hdfs://host:8020/data/{a,b}-[0-9]?/*.parquet"),
        ("hdfs:/x", "hdfs://host:8020/x"),
        ("hdfs:///x/", "hdfs://host:8020/x/"),
        ("hdfs://other/x", "hdfs://other/x"),
        ("HDFS://other/x", "HDFS://other/x"),
        ("s3a://bucket/x/", "s3a://bucket/x/"),
        ("s3a:///x", "s3a:///x"),
        ("abfss://box@account.dfs.core.windows.net/x", "abfss://box@account.dfs.core.windows.net/x"),
        ("dbfs:/x", "dbfs:///x"),
        ("file:/x", "file:/x"),
        ("file:///x", "file:///x"),
    ],
)
def test_paths_on_hdfs_are_what_spark_takes_them_for(path: str, url: str) -> None:
    assert HDFS.resolve(path) == url


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("/data/x", "/data/x"),
        ("/data//x/", "/data/x"),
        ("x", "/work/x"),
        ("a/../x", "/work/a/../x"),  # as the file system takes it: `a` may be a link
        ("~/x", "~/x"),
        ("12:30/x", "/work/12:30/x"),
        ("/a%20b/*.x", "/a%20b/*.x"),
        ("file:/x", "file:/x"),
        ("hdfs:///x", "hdfs:///x"),
        ("hdfs:/x", "hdfs:///x"),
    ],
)
def test_paths_on_local_disk_stay_plain(path: str, url: str) -> None:
    assert LOCAL.resolve(path) == url


@pytest.mark.parametrize(
    ("default", "url"),
    [
        ("hdfs://name-service/ignored", "hdfs://name-service/x"),
        ("viewfs://cluster/", "viewfs://cluster/x"),
        ("s3a://bucket", "s3a://bucket/x"),
        ("dbfs:/", "dbfs:///x"),
        ("abfss://box@account.dfs.core.windows.net", "abfss://box@account.dfs.core.windows.net/x"),
        ("file:/", "/x"),
    ],
)
def test_every_default_file_system(default: str, url: str) -> None:
    assert PathRules(default_fs=default, home="/user/ann").resolve("/x") == url


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(ConfigError, match="must not be empty"):
        HDFS.resolve("")


class Connect:
    """A session of Spark Connect, as far as it is asked."""

    __module__ = "pyspark.sql.connect.session"

    def __init__(self, **settings: str) -> None:
        known = {name.replace("_", "."): value for name, value in settings.items()}
        self.conf = SimpleNamespace(get=known.get, getAll=known)


def test_connect_without_the_setting_refuses_paths_without_a_scheme() -> None:
    session: Any = Connect()
    with pytest.raises(ConfigError, match=r"spark\.hadoop\.fs\.defaultFS") as caught:
        resolve_path(session, "/models/x")
    assert '"file:/models/x"' in caught.value.fix
    assert 'spark.conf.set("spark.hadoop.fs.defaultFS"' in caught.value.fix
    assert resolve_path(session, "file:/models/x") == "file:/models/x"
    assert resolve_path(session, "s3a://bucket/x") == "s3a://bucket/x"


def test_connect_with_the_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    session: Any = Connect(spark_hadoop_fs_defaultFS="file:///")
    assert resolve_path(session, "x") == str(tmp_path / "x")
    session = Connect(spark_hadoop_fs_defaultFS="hdfs://host:8020")
    assert resolve_path(session, "/x") == "hdfs://host:8020/x"
    with pytest.raises(ConfigError, match=r"relative path.*does not tell"):
        resolve_path(session, "x")


def test_connect_brings_the_settings_of_the_session_and_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site(tmp_path, {"dfs.nameservices": "ns", "fs.s3a.endpoint": "old"}, monkeypatch)
    session: Any = Connect(spark_hadoop_fs_s3a_endpoint="new", spark_master="x")
    found = storage_settings_of(session).hadoop
    assert found == {"dfs.nameservices": "ns", "fs.s3a.endpoint": "new"}


def site(folder: Path, values: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    entries = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>" for name, value in values.items()
    )
    (folder / "core-site.xml").write_text(f"<configuration>{entries}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(folder))


def test_without_a_session_the_files_of_hadoop_decide(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(paths, "current_session", lambda: None)
    assert resolve_path(None, "x") == str(tmp_path / "x")
    assert resolve_path(None, "~/x") == str(Path("~/x").expanduser())
    site(tmp_path, {"fs.defaultFS": "hdfs://name:9000", "fs.s3a.secret.key": "hidden"}, monkeypatch)
    assert resolve_path(None, "x") == "hdfs://name:9000/user/ann/x"
    assert current_settings().hadoop["fs.s3a.secret.key"] == "hidden"
    assert "hidden" not in repr(current_settings())
    (tmp_path / "core-site.xml").write_text("<configuration>")
    with pytest.raises(ConfigError, match="must be XML"):
        resolve_path(None, "x")


class Jvm:
    """A classic session's configuration, as far as it is asked."""

    def default_fs(self) -> str:
        return "hdfs://host:8020"

    def home(self) -> str:
        return "/user/ann"

    def user(self) -> str:
        return "ann"

    def values(self) -> dict[str, str]:
        return {"fs.s3a.secret.key": "hidden", "yarn.x": "1", "dfs.nameservices": "ns"}


@pytest.fixture
def classic(monkeypatch: pytest.MonkeyPatch) -> Any:
    for module in (paths, storage_settings):
        monkeypatch.setattr(module, "hadoop_configuration", lambda _: Jvm())
    return SimpleNamespace(conf=SimpleNamespace(get=SETTINGS.get))


def test_a_classic_session_gives_rules_and_settings(classic: Any) -> None:
    assert path_rules_of(classic) == HDFS
    assert dict(storage_settings_of(classic).hadoop) == {
        "fs.s3a.secret.key": "hidden",
        "dfs.nameservices": "ns",
        "hadoop.user": "ann",
    }
    assert pickle.loads(pickle.dumps(storage_settings_of(classic))) == storage_settings_of(classic)


def test_local_urls_need_no_settings(classic: Any) -> None:
    apply_settings(StorageSettings(hadoop={"before": "1"}))
    assert resolve_path(classic, "file:/x") == "file:/x"
    assert "before" in current_settings().hadoop
    resolve_path(classic, "/x")
    assert "dfs.nameservices" in current_settings().hadoop


def test_the_paths_of_a_run_are_resolved_and_its_local_ones_are_not(classic: Any) -> None:
    config = RunConfig(workers=1, checkpoint_dir="checkpoints", tensorboard="/logs", spool_dir="/spool")
    resolved = with_resolved_paths(classic, config)
    assert resolved.checkpoint_dir == "hdfs://host:8020/user/ann/checkpoints"
    assert resolved.tensorboard == "hdfs://host:8020/logs"
    assert resolved.spool_dir == "/spool"
    assert with_resolved_paths(classic, RunConfig(workers=1)) == RunConfig(workers=1)


def test_the_folder_for_records_is_that_of_the_caller_or_of_the_session(
    classic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SETTINGS, "spark.emberflow.record", "/all-runs")
    assert with_resolved_paths(classic, RunConfig(workers=1)).record == "hdfs://host:8020/all-runs"
    own = RunConfig(workers=1, record="own")
    assert with_resolved_paths(classic, own).record == "hdfs://host:8020/user/ann/own"


def test_file_sources_are_resolved_before_their_files_are_listed(classic: Any) -> None:
    class Own:
        def fragments(self) -> list[Any]:
            return []

    own = Own()
    data = read_data(
        {
            "train": Parquet("rows/*.parquet", columns=["x"]),
            "records": TFRecords("/a, b/{c,d}", features={"x": "int64"}, options={"verifyCrc": "false"}),
            "inferred": TFRecords("nowhere yet", features=["x"]),  # the types of which are in the files
            "own": own,
        }
    )
    files: Any = with_resolved_files(classic, data).files
    assert repr(files["train"]) == "Parquet('hdfs://host:8020/user/ann/rows/*.parquet', columns=['x'])"
    assert files["records"].path == "hdfs://host:8020/a,hdfs://host:8020/user/ann/b/{c,d}"
    assert not files["records"]._options.verify
    assert files["inferred"].path == "hdfs://host:8020/user/ann/nowhere yet"
    assert files["own"] is own


def test_the_user_without_a_name_gets_no_user_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("uid not found")

    monkeypatch.delenv("HADOOP_USER_NAME")
    monkeypatch.setattr(hadoop_configuration.getpass, "getuser", nobody)
    assert storage_settings_of(None).hadoop == {}


def test_local_paths_lose_their_scheme() -> None:
    assert str(storage.local_path("file:/a/b")) == "/a/b"
    assert str(storage.local_path("file:///a/b")) == "/a/b"
    assert str(storage.local_path("a/b")) == str(Path("a/b"))
    assert storage.local_path("hdfs://a/b") is None
    assert os.fspath(storage.local_path("/a%20b") or "") == "/a%20b"
