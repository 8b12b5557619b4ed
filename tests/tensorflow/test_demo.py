"""The demo as a newcomer runs it: it learns, it draws, it leaves nothing."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from emberflow.cli.demo_picture import Curve, draw, pick
from tests.conftest import environment_with_every_package
from tests.sessions import Sessions

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(
    ("epochs", "least"), [(3, 0.8), pytest.param(12, 0.97, marks=pytest.mark.full, id="as it is")]
)
def test_demo_learns_and_draws(
    epochs: int, least: float, tmp_path: Path, sessions: Sessions, nothing_left: None
) -> None:
    sessions.close()  # two cores are few for two Sparks
    command = [sys.executable, "-m", "emberflow.cli.main", "demo", "--output", str(tmp_path / "a b")]
    command += [] if epochs == 12 else ["--epochs", str(epochs)]
    env = environment_with_every_package()
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    accuracy = re.search(r"test accuracy\s+(\S+)", done.stdout)
    assert accuracy is not None
    print(f"{epochs} epochs: {accuracy[1]}")
    assert float(accuracy[1]) >= least
    assert f"epoch {epochs} of {epochs}" in done.stderr
    assert (tmp_path / "a b" / "predictions.png").read_bytes().startswith(PNG)
    assert "Run page: http://127.0.0.1:" in done.stderr
    assert '"val_accuracy"' in (tmp_path / "a b" / "report.html").read_text()


def scores_of(labels: list[int], sure: list[float]) -> np.ndarray:
    scores = np.full((len(labels), 10), 0.0)
    scores[np.arange(len(labels)), labels] = sure
    return scores


def test_pick_shows_every_digit_and_ends_with_the_hardest() -> None:
    labels = np.array([*range(10), *range(10), 3, 4])
    picked = pick(labels, scores_of(list(labels), [0.9] * 20 + [0.2, 0.1]), 16)
    assert len(set(picked)) == 16
    assert picked[-2:] == [20, 21]
    assert {int(labels[row]) for row in picked[:12]} == set(range(10))


@pytest.mark.parametrize(("rows", "epochs"), [(60, 12), (20, 1)])
def test_a_picture_can_be_drawn_of_little(rows: int, epochs: int, tmp_path: Path) -> None:
    labels = np.arange(rows) % 10
    scores = scores_of(list(labels), [0.9] * rows)
    scores[0] = np.eye(10)[7]
    draw(
        tmp_path / "p.png",
        np.zeros((rows, 8, 8, 1)),
        labels,
        scores,
        Curve([1.0] * epochs, [0.9] * epochs, [0.5] * epochs),
        "Title",
    )
    assert (tmp_path / "p.png").read_bytes().startswith(PNG)
