"""`emberflow local-hadoop` as a person runs it."""

import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from emberflow.local.hadoop import LocalHadoop
from tests.held_commands import running_command


def printed_in(said: str) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return what is to be exported, and the commands to type, by the name of the program."""
    lines = [shlex.split(line) for line in said.splitlines() if line.startswith("  ")]
    exports = dict(word.split("=", 1) for line in lines if line[0] == "export" for word in line[1:])
    return exports, {Path(line[0]).name: line for line in lines}


def run(command: list[str], exports: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, env=os.environ | exports, capture_output=True, text=True, timeout=300)


@pytest.mark.full
def test_local_hadoop_says_how_to_use_it_and_stops_cleanly(hdfs: LocalHadoop, nothing_left: None) -> None:
    with running_command("local-hadoop", "--no-yarn") as (process, said):
        exports, commands = printed_in(said)
        listed = run(commands["spark-class"], exports)
        assert "hdfs://127.0.0.1:" in said
        assert "YARN" not in said
        assert "/user" in listed.stdout, listed.stderr
        folder = Path(exports["HADOOP_CONF_DIR"]).parent
        assert folder.exists()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    assert not folder.exists()


@pytest.mark.full
@pytest.mark.timeout(600)
def test_the_yarn_of_local_hadoop_is_checked_by_the_command_that_it_prints(
    hdfs: LocalHadoop, nothing_left: None
) -> None:
    with running_command("local-hadoop") as (process, said):
        exports, commands = printed_in(said)
        checked = run([*commands["emberflow"], "--timeout", "240"], exports)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        assert "up to 2 nodes can train together" in checked.stdout
        assert "2048 MB outside of the JVM for up to 1 node per executor" in checked.stdout
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    assert not Path(exports["HADOOP_CONF_DIR"]).exists()
