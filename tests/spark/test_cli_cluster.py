"""`emberflow local-cluster` and `emberflow doctor` as a person runs them."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from emberflow.cli import doctor
from tests.held_commands import EMBERFLOW, running_command


@pytest.mark.parametrize("stop", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.full)])
def test_local_cluster_says_its_url_and_stops_cleanly(stop: signal.Signals, nothing_left: None) -> None:
    with running_command("local-cluster", "--workers", "1", "--gpus", "2") as (process, said):
        assert re.search(r'builder\.master\("spark://127\.0\.0\.1:\d+"\)', said)
        assert f"PYSPARK_PYTHON={shlex.quote(sys.executable)}" in said
        logs = Path(said.split("Logs: ")[1].split("\n")[0])
        assert (logs / "Worker-0.log").exists()
        process.send_signal(stop)
        assert process.wait(20) == 0
    assert not logs.exists()


PROGRAM = """
from pyspark.sql import SparkSession
print("rows", SparkSession.builder.getOrCreate().range(10).count())
"""


def exports_in(said: str) -> dict[str, str]:
    """Return the variables that the command told the user to export."""
    line = next(line for line in said.splitlines() if line.strip().startswith("export "))
    return dict(word.split("=", 1) for word in shlex.split(line)[1:])


@pytest.mark.full
def test_doctor_and_spark_submit_join_as_the_command_says(nothing_left: None, tmp_path: Path) -> None:
    with running_command("local-cluster", "--workers", "2") as (_, said):
        found = re.search(r"spark://127\.0\.0\.1:\d+", said)
        assert found is not None
        command = [*EMBERFLOW, "doctor", "--master", found[0]]
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | exports_in(said))
        submit = next(
            shlex.split(line) for line in said.splitlines() if "spark-submit --properties-file" in line
        )
        program = tmp_path / "program.py"
        program.write_text(PROGRAM)
        submitted = subprocess.run([*submit[:-1], program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 on " in done.stdout
    assert "Executors' tensorflow" in done.stdout
    assert "✗" not in done.stdout
    assert submitted.stdout.split() == ["rows", "10"], submitted.stderr


def test_doctor_says_when_a_master_is_not_there(nothing_left: None) -> None:
    (finding,) = doctor.ask_executors("spark://127.0.0.1:1", timeout=8)
    assert finding.state == "failure"
    assert "spark://127.0.0.1:1" in finding.text
