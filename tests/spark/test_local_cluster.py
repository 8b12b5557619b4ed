"""A Master and Workers of their own: what they offer, and that nothing of them stays."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from emberflow.errors import ClusterError, ConfigError, StartTimeoutError
from emberflow.local_cluster import LocalCluster, local_cluster
from tests import leaks
from tests.sessions import Sessions
from tests.unit.test_daemons import gone


@pytest.fixture
def no_session(sessions: Sessions) -> None:
    """This process's one place for a SparkContext is free."""
    sessions.close()


def processes_in(folder: Path) -> list[psutil.Process]:
    """Return the processes that run for this cluster, executors included."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR", "").startswith(str(folder)):
                found.append(process)
        except psutil.Error:
            continue
    return found


def my_gpus(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa
    from pyspark import BarrierTaskContext

    for _ in batches:
        pass
    task = BarrierTaskContext.get()
    task.barrier()
    addresses = task.resources()["gpu"].addresses
    yield pa.RecordBatch.from_pydict(
        {"gpus": [",".join(addresses)], "python": [sys.executable], "cwd": [str(Path.cwd())]}
    )


def test_two_workers_with_gpus_run_one_executor_each(
    no_session: None, nothing_left: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "spark-env.sh").write_text("exit 7\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("SPARK_WORKER_CORES", "9")
    with local_cluster(workers=2, cores=1, gpus=2) as cluster:
        monkeypatch.delenv("SPARK_CONF_DIR")
        before = dict(os.environ)
        with cluster.session() as spark:
            assert {name for name in before.items() ^ os.environ.items() if "SPARK_" not in name[0]} == set()
            with pytest.raises(ClusterError, match="already"):
                cluster.session()
            schema = "gpus string, python string, cwd string"
            rows = spark.range(0, 2, 1, 2).mapInArrow(my_gpus, schema, barrier=True).collect()
            listening = {
                c.laddr.ip
                for p in processes_in(cluster.log_dir)
                for c in p.net_connections("tcp")
                if c.status == "LISTEN"
            }
        assert sorted(row.gpus for row in rows) == ["0,1", "2,3"]
        assert {row.python for row in rows} == {sys.executable}
        assert {Path(row.cwd).relative_to(cluster.log_dir).parts[0] for row in rows} == {
            "Worker-0",
            "Worker-1",
        }
        assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
        folder = cluster.log_dir
        left = processes_in(folder)
        assert len(left) >= 3
    assert not folder.exists()
    assert all(gone(process.pid) for process in left)


OWNER = """
import sys
from emberflow.local_cluster import local_cluster
with local_cluster(workers=1) as cluster:
    print(cluster.log_dir, flush=True)
    sys.stdin.read()
"""


def test_a_killed_owner_leaves_nothing(nothing_left: None) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", OWNER], stdin=pipe, stdout=pipe, text=True) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        running = processes_in(folder)
        assert len(running) >= 2
        owner.kill()
    assert all(gone(process.pid) for process in running)


def test_a_start_that_takes_too_long_is_an_error_and_leaves_nothing(nothing_left: None) -> None:
    with pytest.raises(StartTimeoutError, match="Master was not ready"), local_cluster(start_timeout=0.01):
        pass


def test_a_worker_that_cannot_start_is_an_error_with_its_log(nothing_left: None) -> None:
    with (
        pytest.raises(ClusterError, match=r"(?s)Worker-0 ended.*memory"),
        local_cluster(memory="9999999999999g"),
    ):
        pass


@pytest.mark.parametrize(
    "wrong",
    [{"workers": 0}, {"workers": True}, {"cores": "two"}, {"gpus": -1}, {"memory": "much"}, {"memory": 5}],
)
def test_wrong_arguments_start_nothing(wrong: dict[str, Any]) -> None:
    before = leaks.look()
    with pytest.raises(ConfigError, match=f"Received: {next(iter(wrong))}="), local_cluster(**wrong):
        pass
    assert leaks.look().beyond(before) == []


def test_settings_use_the_whole_cluster() -> None:
    cluster = LocalCluster(url="spark://x", workers=3, cores=2, gpus=4, memory="2g", log_dir=Path())
    settings = cluster.settings()
    assert settings["spark.cores.max"] == "6"
    assert settings["spark.executor.memory"] == "2g"
    assert settings["spark.task.resource.gpu.amount"] == "2"
