"""The steps of the MNIST walk-through for tests: tiny images, the scripts, and what must be there afterwards."""

import gzip
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from emberflow import storage
from emberflow.cli.main import app
from tests.conftest import ROOT

SCRIPTS = ROOT / "examples" / "mnist"
SPARK_LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6} Label: (\d), Prediction: (\d)")
FILES_LINE = re.compile(r"(\d) (\d)")
RECORDER = """#!/bin/bash
printf '%s\\0' "$@" >> "$RECORDED"
printf '\\n' >> "$RECORDED"
"""
Step = Callable[..., str]
"""Runs a script with arguments; returns what was printed."""


def write_tiny_mnist(folder: Path, train: int = 192, test: int = 48) -> None:
    """Write the four idx files with images that a network learns at once: the label is where a block is bright."""
    random = np.random.default_rng(7)
    for part, rows in {"train": train, "t10k": test}.items():
        labels = np.arange(rows, dtype=np.uint8) % 10
        images = random.integers(0, 40, (rows, 28, 28), dtype=np.uint8)
        for image, label in zip(images, labels, strict=True):
            row, column = divmod(int(label), 4)
            image[row * 9 : row * 9 + 7, column * 7 : column * 7 + 6] = 255
        head = b"\0\0\x08\x03" + struct.pack(">III", rows, 28, 28)
        _gzip(folder / f"{part}-images-idx3-ubyte.gz", head + images.tobytes())
        _gzip(
            folder / f"{part}-labels-idx1-ubyte.gz",
            b"\0\0\x08\x01" + struct.pack(">I", rows) + labels.tobytes(),
        )


def _gzip(path: Path, content: bytes) -> None:
    path.write_bytes(gzip.compress(content))


def script_runner(settings: dict[str, str], timeout: float) -> Step:
    """Return what runs a script as a person does, with the programs of this environment first on the PATH."""
    environment = os.environ | settings | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def step(script: str, *arguments: str) -> str:
        command = [str(SCRIPTS / script), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=timeout)
        assert done.returncode == 0, f"{script}: {done.stdout}\n{done.stderr[-4000:]}"
        return done.stdout + done.stderr

    return step


def command_runner(settings: dict[str, str], folder: Path) -> Step:
    """Return what runs the commands of a script in this process, on the session that is active.

    The scripts themselves run with a `spark-submit` that records its arguments: each real one would start a driver.
    """
    recorder, recorded = folder / "bin" / "spark-submit", folder / "recorded"
    recorder.parent.mkdir()
    recorder.write_text(RECORDER)
    recorder.chmod(0o755)
    path = f"{recorder.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"

    def step(script: str, *arguments: str) -> str:
        recorded.unlink(missing_ok=True)
        environment = os.environ | settings | {"PATH": path, "RECORDED": str(recorded)}
        subprocess.run([str(SCRIPTS / script), *arguments], check=True, env=environment, timeout=60)
        output = ""
        for line in recorded.read_text().splitlines():
            words = line.rstrip("\0").split("\0")
            (at,) = [at for at, word in enumerate(words) if word.endswith("cli/submit.py")]
            done = CliRunner().invoke(app, words[at + 1 :])
            assert done.exit_code == 0, f"{script}: {done.output[-4000:]} {done.exception!r}"
            output += done.output
        return output

    return step


@dataclass(frozen=True, kw_only=True)
class Walk:
    """The steps on one storage.

    Attributes:
        step: Runs a script.
        root: The folder of the walk-through as tests see it.
        images: The folder with the idx files.
        test_rows: How many images are scored.
        least: The least share of right predictions.
    """

    step: Step
    root: str
    images: Path
    test_rows: int
    least: float

    def all_steps(self, *, partitions: int, epochs: int) -> None:
        """Take the steps of the page in their order.

        Args:
            partitions: How many files `prepare.sh` is told to write.
            epochs: How many the trainings are told to take.
        """
        self.prepare(partitions)
        self.train_and_predict("spark", SPARK_LINE)
        assert "The evaluator's last: " in self.train_and_predict("files", FILES_LINE)
        self.continue_with_files(epochs + 1)

    def prepare(self, partitions: int) -> None:
        """Convert, and look at what is there."""
        printed = self.step("prepare.sh", str(self.images))
        assert printed.count("The rows are in") == 4
        for part in ("csv/train", "csv/t10k", "tfrecord/train", "tfrecord/t10k"):
            names = [file.path.rpartition("/")[2] for file in storage.list_files(self._at(part))]
            assert len([name for name in names if name.startswith("part-")]) == partitions, names
            assert "_SUCCESS" in names

    def train_and_predict(self, way: str, line: "re.Pattern[str]") -> str:
        """Train, list the folder of the model, predict, and look at the lines; return what the training printed."""
        printed = self.step(f"train_with_{way}.sh")
        found = [file.path for file in storage.list_files(self._at(f"with_{way}"))]
        for wanted in (r"checkpoints/.*/step-\d+/", r"events/.*tfevents", r"export/.*saved_model\.pb"):
            assert any(re.search(wanted, path) for path in found), f"{wanted}: {found}"
        self.step(f"predict_with_{way}.sh")
        lines = self.lines(f"with_{way}/predictions")
        assert len(lines) == self.test_rows
        pairs = [line.fullmatch(text) for text in lines]
        assert all(pairs), lines[:3]
        right = sum(pair[1] == pair[2] for pair in pairs if pair)
        assert right >= self.least * self.test_rows, f"{right} of {self.test_rows} are right"
        return printed

    def continue_with_files(self, epochs: int) -> None:
        """Train one more epoch than before: only that one, and from the checkpoint."""
        printed = self.step("train_with_files.sh", "--epochs", str(epochs), "--continue")
        assert re.findall(r"epoch (\d+) of", printed) == [str(epochs)]

    def lines(self, inside: str) -> list[str]:
        """Return the lines of a folder of text files."""
        files = [file.path for file in storage.list_files(self._at(inside)) if "/part-" in file.path]
        return [line for file in files for line in storage.read_bytes(file).decode().splitlines()]

    def _at(self, inside: str) -> str:
        return storage.join(self.root, inside)
