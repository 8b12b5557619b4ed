"""`emberflow runs` and `emberflow ui`: recorded runs listed, compared, as a report; and what wrong input gets."""

import math
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from emberflow._record import events as e
from emberflow._record.record_writer import RecordWriter
from emberflow.cli.main import app
from tests.unit.runs_simulated import failed, started, succeeded

WITHIN = 60.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two recorded runs."""
    for at, (run_id, events) in enumerate([("0a1b2c3d", succeeded(nodes=4)), ("bad0bad0", failed())]):
        writer = RecordWriter(str(tmp_path / "runs" / f"2026010{at + 1}-000000-{run_id}"))
        for event in events:
            writer.put(event)
        writer.close()
    return tmp_path / "runs"


def said_to(*arguments: Any, code: int = 0) -> str:
    done = CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.output


def test_runs_are_listed_one_line_each(folder: Path) -> None:
    lines = said_to("runs", folder).splitlines()
    assert lines[0].split() == [
        "run",
        "began",
        "function",
        "state",
        "nodes",
        "attempts",
        "seconds",
        "last",
        "metrics",
    ]
    assert [line.split()[0] for line in lines[1:]] == ["0a1b2c3d", "bad0bad0"]
    assert re.search(r"train +succeeded +4 +1 +70  loss 0.1\d+  accuracy", lines[1])
    assert re.search(r"train +failed +2 +1 +9 ", lines[2])


def test_one_run_may_be_named_itself(folder: Path) -> None:
    assert len(said_to("runs", folder / "20260101-000000-0a1b2c3d").splitlines()) == 2


def test_two_runs_are_compared_by_the_beginning_of_their_names(folder: Path) -> None:
    text = said_to("runs", folder, "--compare", "0a", "last")
    assert re.search(r"workers +4 +2", text)
    assert re.search(r"state +succeeded +failed", text)
    assert re.search(r"val_loss +0\.\d+", text)


def test_a_name_that_fits_no_run_is_answered_with_those_there_are(folder: Path) -> None:
    text = said_to("runs", folder, "--compare", "ffff", "last", code=2)
    assert "no run begins with" in text
    assert "0a1b2c3d, bad0bad0" in text


@pytest.mark.parametrize("command", ["runs", "ui"])
def test_a_path_without_runs_is_wrong_input(command: str, tmp_path: Path) -> None:
    assert "Record a run there first" in said_to(command, tmp_path, code=2)


def test_a_report_is_one_file(folder: Path, tmp_path: Path) -> None:
    said_to("runs", folder, "--compare", "0a", "bad", "--html", tmp_path / "both.html")
    text = (tmp_path / "both.html").read_text()
    assert "0a1b2c3d" in text
    assert "bad0bad0" in text
    said_to("runs", folder, "--html", tmp_path / "last.html")
    assert "0a1b2c3d" not in (tmp_path / "last.html").read_text()


@pytest.mark.parametrize("place", ["/proc/none/run.html", "/dev/null/run.html"])
def test_a_report_that_cannot_be_written_is_wrong_input(folder: Path, place: str) -> None:
    text = said_to("runs", folder, "--html", place, code=2)
    assert place in text
    assert "Fix: Choose" in text


def test_parallel_tasks_are_listed_by_the_best_of_them(tmp_path: Path) -> None:
    writer = RecordWriter(str(tmp_path / "20260101-000000-0a1b2c3d"))
    writer.put(started(kind="parallel"))
    for rank, loss in enumerate([0.5, 0.25, math.nan]):
        writer.put(e.MetricsReported(t=1.0, rank=rank, step=1, values={"accuracy": loss / 2, "loss": loss}))
    writer.close()
    assert "loss 0.25 (best: task 1)  accuracy 0.25 (best: task 0)" in said_to("runs", tmp_path)


def test_the_page_of_recorded_runs_is_served_until_ctrl_c(folder: Path) -> None:
    command = [sys.executable, "-m", "emberflow.cli.main", "ui", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127.0.0.1:\d+/\?token=\S+", line)
        assert found is not None, line
        with urllib.request.urlopen(found[0], timeout=WITHIN) as response:
            assert "Learning curves" in response.read().decode()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=WITHIN)
    assert process.returncode == 0
    assert "Stopped." in out
    assert "Traceback" not in err


def test_a_port_that_is_taken_is_said(folder: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        text = said_to("ui", folder, "--port", other.getsockname()[1], code=2)
    assert text.startswith("The page needs a free port")  # as other wrong input: without the name of a class
    assert "Fix: Choose another port" in text
