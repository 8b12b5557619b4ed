"""Paths in your function and in the `tfrecord` data source: the same rule as on the driver; no secret in any text."""

import pickle
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from emberflow._driver import paths, storage_settings
from emberflow._driver.cluster_facts import ClusterFacts
from emberflow._node.storage_access import StorageAccess
from emberflow._plan.path_rules import PathRules
from emberflow._task.task_spec import TaskSpec
from emberflow.errors import ConfigError
from emberflow.storage import StorageSettings, apply_settings, current_settings
from emberflow.tfrecord import api
from emberflow.tfrecord.spark_source import TFRecordSource
from tests.unit.nodes import plan_of

SECRET = StorageSettings(hadoop={"fs.s3a.secret.key": "hidden"})
MEMORY = PathRules(default_fs="memory://", home="/user/ann")


class Node(StorageAccess):
    """What `ctx` is to these methods."""

    def __init__(self, rules: PathRules, work_dir: Path, rank: int = 0) -> None:
        self._paths = rules
        self.work_dir = work_dir
        self.rank = rank


@pytest.fixture(autouse=True)
def _own_settings() -> Any:
    before = current_settings()
    yield
    apply_settings(before)


def test_a_node_opens_what_the_driver_would(tmp_path: Path) -> None:
    ctx = Node(MEMORY, tmp_path)
    with ctx.open("deep/er/x.txt", "w") as file:
        file.write("ü\n")
    with ctx.open("/user/ann/deep/er/x.txt") as file:
        assert file.read() == "ü\n"
    with ctx.open("memory:///user/ann/deep/er/x.txt", "rb") as file:
        assert file.read() == "ü\n".encode()
    assert ctx.absolute_path("deep") == "memory:///user/ann/deep"


def test_a_node_on_local_disk_starts_from_the_drivers_folder(tmp_path: Path) -> None:
    ctx = Node(PathRules(home=str(tmp_path)), tmp_path / "other")
    with ctx.open("new/x", "wb") as file:
        file.write(b"1")
    with ctx.open("new/x", "ab") as file:
        file.write(b"2")
    assert (tmp_path / "new" / "x").read_bytes() == b"12"
    assert ctx.absolute_path("new/x") == str(tmp_path / "new" / "x")
    with pytest.raises(FileNotFoundError):
        ctx.open("missing")


def test_only_the_chief_exports_and_tells_the_url(tmp_path: Path) -> None:
    class Model:
        def export(self, path: str, *, verbose: bool) -> None:
            assert not verbose
            Path(path).mkdir()
            (Path(path) / "saved_model.pb").write_bytes(b"x")

    assert Node(MEMORY, tmp_path, rank=1).export(Model(), "models/1") is None
    url = Node(MEMORY, tmp_path).export(Model(), "models/1")
    assert url == "memory:///user/ann/models/1"


def test_on_connect_a_node_needs_a_scheme_too(tmp_path: Path) -> None:
    ctx = Node(PathRules(default_fs=None, home=None), tmp_path)
    with pytest.raises(ConfigError, match=r"spark\.hadoop\.fs\.defaultFS"):
        ctx.open("/x")
    assert ctx.absolute_path(f"file:{tmp_path}") == f"file:{tmp_path}"


def test_the_data_source_of_a_session_takes_its_storage_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark plans with it in another process, where there is no session: all it knows is pickled."""
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.setattr(paths, "path_rules_of", lambda _: MEMORY)
    monkeypatch.setattr(storage_settings, "storage_settings_of", lambda _: SECRET)
    session: Any = None
    known = pickle.loads(cloudpickle.dumps(api._of_session(session, TFRecordSource)))
    source = known({"path": "/a, b/{c,d}"})
    assert source.name() == "tfrecord"
    assert source._reading().paths == ("memory:///a", "memory:///user/ann/b/{c,d}")
    assert source._writing().paths == ("memory:///a, b/{c,d}",)  # a folder may have such a name
    assert source._reading().storage.hadoop["fs.s3a.secret.key"] == "hidden"
    assert current_settings().hadoop["fs.s3a.secret.key"] == "hidden"
    assert "hidden" not in repr(source._reading())


def test_a_data_source_that_spark_has_found_reads_hadoops_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("HADOOP_USER_NAME", "eve")
    (tmp_path / "core-site.xml").write_text(
        "<configuration><property><name>fs.defaultFS</name><value>hdfs://name:9000</value></property></configuration>"
    )
    options = TFRecordSource({"path": "data"})._reading()
    assert options.paths == ("hdfs://name:9000/user/eve/data",)
    assert options.storage.hadoop == {"fs.defaultFS": "hdfs://name:9000", "hadoop.user": "eve"}
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HADOOP_CONF_DIR")
    assert TFRecordSource({"path": "data"})._reading().paths == (str(tmp_path / "data"),)


def test_no_text_shows_a_secret() -> None:
    spec = TaskSpec(plan=plan_of(1), key=b"k", fn=b"f", storage=SECRET)
    for value in (spec, ClusterFacts(is_connect=False, storage=SECRET), SECRET):
        assert "hidden" not in f"{value!r} {value}"
    assert pickle.loads(pickle.dumps(spec)).storage == SECRET
