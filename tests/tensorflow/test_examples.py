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


def test_a_cluster_is_trained_twice_asked_and_stopped(
    spark_local: Any,
    nothing_left: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["live_cluster.py", "--tiny"])
    runpy.run_path(str(ROOT / "examples" / "live_cluster.py"), run_name="__main__")
    said = capsys.readouterr().out
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
    done = run_example("streaming.py", "--days", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    errors = [float(each) for each in re.findall(r"mean error (\S+) before", done.stdout)]
    assert len(errors) == 3
    assert errors[-1] < errors[0]
    assert "kept: [1, 2, 3, 4]" in done.stdout
