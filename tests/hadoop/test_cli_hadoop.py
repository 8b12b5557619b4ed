"""`emberflow local-hadoop` as a person runs it."""

import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from emberflow.local.hadoop import LocalHadoop
from tests.held_commands import running_command


@pytest.mark.full
def test_local_hadoop_says_how_to_use_it_and_stops_cleanly(hdfs: LocalHadoop, nothing_left: None) -> None:
    with running_command("local-hadoop", "--no-yarn") as (process, said):
        words = [shlex.split(line) for line in said.splitlines() if line.startswith("  ")]
        exports = dict(word.split("=", 1) for line in words if line[0] == "export" for word in line[1:])
        shell = next(line for line in words if line[0].endswith("spark-class"))
        listed = subprocess.run(shell, env=os.environ | exports, capture_output=True, text=True, check=True)
        assert "hdfs://127.0.0.1:" in said
        assert "YARN" not in said
        assert "/user" in listed.stdout
        folder = Path(exports["HADOOP_CONF_DIR"]).parent
        assert folder.exists()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    assert not folder.exists()
