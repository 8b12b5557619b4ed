"""The examples, as a reader starts them."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, mnist_folder
from tests.sessions import Sessions


def run_example(name: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {key: value for key, value in os.environ.items() if key != "EMBERFLOW_MNIST"}
    command = [sys.executable, f"examples/{name}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)


def run_here(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Run an example in this process, whose session it finds; return what it printed."""
    monkeypatch.setattr(sys, "argv", [name, "--tiny"])
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    return capsys.readouterr().out


def test_the_table_names_every_example() -> None:
    table = (ROOT / "examples" / "README.md").read_text()
    programs = [path.relative_to(ROOT / "examples") for path in (ROOT / "examples").rglob("*.py")]
    missing = [str(path) for path in programs if path.parts[0] != "mnist" and f"]({path}) | " not in table]
    assert missing == []


def test_the_tests_run_every_command_of_the_table() -> None:
    table = (ROOT / "examples" / "README.md").read_text()
    commands = re.findall(r"`python examples/(\S+)([^`]*)`", table)
    assert {name for name, arguments in commands if "--tiny" not in arguments} == set()
    tested = Path(__file__).read_text()
    # tests/tensorflow/test_example_models.py runs all that are in models/
    assert [name for name, _ in commands if "/" not in name and f'"{name}"' not in tested] == []


@pytest.mark.full
def test_files_are_scored_by_independent_processes(
    spark_local: Any,
    nothing_left: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = run_here("parallel_inference.py", monkeypatch, capsys)
    assert sum(int(rows) for rows in re.findall(r"shard \d: (\d+) rows", said)) == 500
    assert float(said.split()[-1]) < 1e-5, said


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "least"), [("pipeline.py", 0.8), ("resnet.py", 0.5), ("segmentation.py", 0.8)]
)
def test_an_example_learns(
    name: str,
    least: float,
    spark_local: Any,
    nothing_left: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = run_here(name, monkeypatch, capsys)
    assert float(said.split()[-1]) >= least, said


@pytest.mark.full
def test_a_graph_of_tensorflow_1_learns_with_a_periodic_server(
    spark_three: Any,
    nothing_left: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = run_here("tf1_mnist.py", monkeypatch, capsys)
    assert re.search(r"ps 0: .*pushes", said), said
    assert float(said.split()[-1]) >= 0.8, said


@pytest.mark.full
def test_mnist_is_read_right_after_three_epochs_on_two_workers(
    mnist: Any, tmp_path: Path, sessions: Sessions, nothing_left: None
) -> None:
    sessions.close()  # two cores are few for two Sparks
    done = run_example("mnist.py", str(mnist_folder()), "--output", str(tmp_path / "model"))
    assert done.returncode == 0, done.stdout + done.stderr
    accuracy = re.search(r"test accuracy (\S+) of 10,000 images", done.stdout)
    assert accuracy is not None
    assert float(accuracy[1]) >= 0.98
    assert "epoch 3 of 3" in done.stderr
    assert (tmp_path / "model" / "model.keras").exists()


@pytest.mark.full  # README has one, and tests/spark/test_live.py
def test_a_cluster_is_trained_twice_asked_and_stopped(
    spark_local: Any,
    nothing_left: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = run_here("live_cluster.py", monkeypatch, capsys)
    assert "monday: 200 rows" in said
    assert "tuesday: 200 rows" in said
    assert float(said.split()[-1]) < 0.1, said


def test_mnist_says_which_file_is_missing(tmp_path: Path) -> None:
    (tmp_path / "train-images-idx3-ubyte.gz").touch()
    done = run_example("mnist.py", str(tmp_path))
    assert done.returncode == 1
    assert f"{tmp_path}, without train-labels-idx1-ubyte" in done.stderr
    assert "Fix: name the folder" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.full
def test_a_stream_is_learned_from_and_scored(sessions: Sessions, nothing_left: None) -> None:
    sessions.close()
    done = run_example("streaming.py", "--tiny")
    assert done.returncode == 0, done.stdout + done.stderr
    errors = [float(each) for each in re.findall(r"mean error (\S+) before", done.stdout)]
    assert len(errors) == 2
    assert errors[-1] < errors[0]
    assert "kept: [1, 2, 3]" in done.stdout


@pytest.mark.full
def test_a_program_with_flags_and_a_server_runs_unchanged(sessions: Sessions, nothing_left: None) -> None:
    sessions.close()
    done = run_example("between_graph.py", "--tiny")
    assert done.returncode == 0, done.stdout + done.stderr
    losses = re.findall(r"(?:chief|worker): \d+ steps, loss (\S+)", done.stdout)
    assert len(losses) == 2
    assert max(map(float, losses)) < 5, done.stdout  # it begins at about 14


@pytest.mark.full
@pytest.mark.parametrize("mode", ["spark", "files"])
def test_drawn_digits_are_read_right_in_both_input_modes(
    mode: str, sessions: Sessions, nothing_left: None
) -> None:
    sessions.close()
    done = run_example("mnist.py", "--tiny", "--input-mode", mode)
    assert done.returncode == 0, done.stdout + done.stderr
    accuracy = re.search(r"test accuracy (\S+) of 200 images", done.stdout)
    assert accuracy is not None, done.stdout
    assert float(accuracy[1]) >= 0.9
