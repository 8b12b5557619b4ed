"""A Master and Workers of their own: what they offer, and that nothing of them stays."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from emberflow.errors import ClusterError, ConfigError, StartTimeoutError
from emberflow.local.cluster import LocalCluster, local_cluster
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


def commands_of(folder: Path) -> list[list[str]]:
    """Return the arguments of all processes of the cluster and of this driver, as `ps` shows them to everybody."""
    found = []
    for process in [*processes_in(folder), *psutil.Process().children(recursive=True)]:
        with suppress(psutil.Error):  # one has just ended
            found.append(process.cmdline())
    return found


def check_secret_is_kept(cluster: LocalCluster, commands: list[list[str]]) -> None:
    assert any("org.apache.spark.deploy.SparkSubmit" in command for command in commands), "the driver's JVM"
    assert any("CoarseGrainedExecutorBackend" in " ".join(command) for command in commands)
    assert [command for command in commands if cluster.secret in " ".join(command)] == []
    assert cluster.secret not in repr(cluster)
    assert cluster.secret not in str(cluster.settings())
    for file in cluster.log_dir.rglob("*"):
        if file.is_file() and cluster.secret.encode() in file.read_bytes():
            assert file.suffix == ".conf", f"{file} tells the secret"
            assert file.stat().st_mode & 0o077 == 0


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
            commands = commands_of(cluster.log_dir)
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
        check_secret_is_kept(cluster, commands)
        folder = cluster.log_dir
        left = processes_in(folder)
        assert len(left) >= 3
    assert not folder.exists()
    assert all(gone(process.pid) for process in left)


STRANGER = """
import sys
from pyspark.sql import SparkSession
SparkSession.builder.master(sys.argv[1]).config("spark.driver.host", "127.0.0.1").getOrCreate()
"""


def join_as_stranger(url: str, settings: Path) -> "subprocess.Popen[str]":
    """Try to use the cluster with the settings of a file, in a process of its own."""
    env = {**os.environ, "PYSPARK_SUBMIT_ARGS": f"--properties-file {settings} pyspark-shell"}
    return subprocess.Popen([sys.executable, "-c", STRANGER, url], env=env, stderr=subprocess.PIPE, text=True)


@pytest.mark.full
@pytest.mark.fault
def test_a_session_that_does_not_know_the_secret_is_refused(
    no_session: None, nothing_left: None, tmp_path: Path
) -> None:
    (tmp_path / "nothing").touch()
    (tmp_path / "guess").write_text("spark.authenticate true\nspark.authenticate.secret guessed\n")
    with local_cluster(workers=1) as cluster:
        strangers = [join_as_stranger(cluster.url, file) for file in sorted(tmp_path.iterdir())]
        try:
            for stranger in strangers:
                assert stranger.stderr is not None
                # Spark itself gives up after three tries, a minute later.
                refusal = next(line for line in stranger.stderr if "Failed to connect to master" in line)
                assert cluster.url.removeprefix("spark://") in refusal
        finally:
            for stranger in strangers:
                for process in [*psutil.Process(stranger.pid).children(recursive=True), stranger]:
                    process.kill()
                stranger.communicate()
        assert "Registering app" not in (cluster.log_dir / "Master.log").read_text()


OWNER = """
import sys
from emberflow.local.cluster import local_cluster
with local_cluster(workers=1) as cluster:
    print(cluster.log_dir, flush=True)
    sys.stdin.read()
"""


@pytest.mark.fault
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


@pytest.mark.full
@pytest.mark.fault
def test_a_worker_that_cannot_start_is_an_error_with_its_log(nothing_left: None) -> None:
    with (
        pytest.raises(ClusterError, match=r"(?s)Worker-0 exited with code 1.*memory"),
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
    cluster = LocalCluster(
        url="spark://x", workers=3, cores=2, gpus=4, memory="2g", log_dir=Path(), secret="s"
    )
    settings = cluster.settings()
    assert settings["spark.cores.max"] == "6"
    assert settings["spark.executor.memory"] == "2g"
    assert settings["spark.task.resource.gpu.amount"] == "2"
