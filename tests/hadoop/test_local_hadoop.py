"""A Hadoop on this machine: what it offers, the servers that can be stopped, and that nothing of it stays."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from emberflow.errors import ClusterError, ConfigError
from emberflow.local import hadoop_jars
from emberflow.local.daemons import MARK
from emberflow.local.hadoop import LocalHadoop, running_hadoop
from tests.hadoop.conftest import hadoop_or_skip
from tests.unit.test_daemons import gone


def processes_of(folder: Path) -> list[psutil.Process]:
    """Return the processes that run for this Hadoop, at any depth."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == str(folder):
                found.append(process)
        except psutil.Error:
            continue
    return found


def listening_addresses(folder: Path) -> set[str]:
    return {
        connection.laddr.ip.removeprefix("::ffff:")
        for process in processes_of(folder)
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }


def test_a_file_goes_to_hdfs_and_back_by_two_clients(hdfs: LocalHadoop, tmp_path: Path) -> None:
    from hdfs_native import Client

    client = Client(hdfs.default_fs)
    with client.create(f"{hdfs.home}/by-native") as file:
        file.write(b"native")
    assert hdfs.run_fs_shell("-cat", "by-native") == "native"  # relative: in the user's home
    (tmp_path / "local").write_text("hadoop")
    hdfs.run_fs_shell("-put", str(tmp_path / "local"), "by-shell")
    with client.read(f"{hdfs.home}/by-shell") as file:
        assert file.read() == b"hadoop"
    assert client.get_file_info("/tmp").permission & 0o1777 == 0o1777
    assert listening_addresses(hdfs.log_dir) == {"127.0.0.1"}


@pytest.mark.full
@pytest.mark.fault
def test_servers_that_were_stopped_come_back_with_their_files(nothing_left: None) -> None:
    with hadoop_or_skip(yarn=False, data_nodes=2) as running:
        running.run_fs_shell("-touchz", "empty")
        running.run_fs_shell("-put", __file__, "full")
        running.stop_data_node(0)
        running.stop_data_node(1)
        with pytest.raises(ClusterError, match="Hadoop's shell exited with code 1"):
            running.run_fs_shell("-put", __file__, "impossible")
        running.start_data_node(0)
        running.start_data_node(1)
        running.restart_name_node()
        assert running.run_fs_shell("-cat", "full") == Path(__file__).read_text()
        running.run_fs_shell("-put", __file__, "possible")


OWNER = """
import sys
from emberflow.local.hadoop import running_hadoop
with running_hadoop(yarn=True) as hadoop:
    print(hadoop.log_dir, flush=True)
    sys.stdin.read()
"""


@pytest.mark.full
@pytest.mark.fault
def test_a_killed_owner_leaves_neither_hdfs_nor_yarn(hdfs: LocalHadoop, nothing_left: None) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", OWNER], stdin=pipe, stdout=pipe, text=True) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        running = processes_of(folder)
        assert len(running) == 4
        assert listening_addresses(folder) == {"127.0.0.1"}
        assert (folder / "data" / "node-attributes").is_dir()  # not in /tmp, where Hadoop's default is
        owner.kill()
    assert all(gone(process.pid) for process in running)


def test_without_maven_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="no `mvn` on the PATH") as caught, running_hadoop():
        pass
    assert "apt install maven" in caught.value.fix


def test_maven_without_its_repository_is_an_error_with_what_it_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    maven = tmp_path / "mvn"
    maven.write_text("#!/bin/sh\necho Could not transfer artifact; exit 1\n")
    maven.chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match=r"(?s)exited with code 1.*Could not transfer artifact") as caught:
        hadoop_jars.hadoop_jars()
    assert "settings.xml" in caught.value.fix


def test_wrong_arguments_start_nothing() -> None:
    with pytest.raises(ConfigError, match="Received: data_nodes=0"), running_hadoop(data_nodes=0):
        pass
