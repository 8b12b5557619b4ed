"""How long from the call to the first line of the user's function on both nodes of a warm two-executor session?

Emberflow against spark-tensorflow-distributor 1.0.0 and TensorFlowOnSpark 2.2.5, each in its own environment
(``benchmarks/.env-NAME``, made here) with the same PySpark and TensorFlow, on ``local-cluster[2,1,1024]``, bound to
loopback, measured in turn. ``python -m benchmarks.start [REPEATS]``
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

from benchmarks.measure import alternate, print_result, summary

HERE = Path(__file__).parent
REQUIREMENTS = {
    "distributor": "spark-tensorflow-distributor==1.0.0",
    "tfos": "tensorflowonspark==2.2.5",
}
# Sides of other benchmarks, which need neither PySpark nor TensorFlow.
PLAIN = {"mpi": ("mpi4py==4.1.2", "mpich==5.0.2", "numpy")}
FOREIGN = ("PYTHONPATH", "SPARK_HOME", "PYTHONDONTWRITEBYTECODE")
REPEATS = 11
WITH_TENSORFLOW = 3


def python_of(side: str) -> str:
    """Return the Python of a side, in an environment that is made if it is not there."""
    if side == "emberflow":
        return sys.executable
    folder = HERE / f".env-{side}"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        _install(folder, python, side)
        (folder / "complete").touch()
    return str(python)


def _install(folder: Path, python: Path, side: str) -> None:
    if shutil.which("uv"):
        subprocess.run(["uv", "venv", "-q", "--python", sys.executable, str(folder)], check=True)
    else:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    if side in PLAIN:
        add(python, *PLAIN[side])
        return
    same = [f"{name}=={version(name)}" for name in ("pyspark", "tensorflow")]
    add(python, REQUIREMENTS[side], *same, "setuptools<81")  # newer ones have no pkg_resources


def add(python: Path, *wanted: str) -> None:
    """Install packages beside this Python; they stay if they are there."""
    if shutil.which("uv"):
        subprocess.run(["uv", "pip", "install", "-q", "--python", str(python), *wanted], check=True)
    else:
        subprocess.run([str(python), "-m", "pip", "install", "-q", *wanted], check=True)


class Side:
    """A driver process that launches when told to."""

    def __init__(self, name: str, folder: Path, log: IO[bytes]) -> None:
        python = python_of(name)
        here = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
        here |= {"TFOS_SERVER_HOST": "127.0.0.1", "TF_CPP_MIN_LOG_LEVEL": "2"}
        here |= {
            "PYTHONPYCACHEPREFIX": str(HERE / ".env-pycache")
        }  # all sides have compiled modules, as pip makes
        own = {key: value for key, value in os.environ.items() if key not in FOREIGN}
        folder.mkdir()
        self._process = subprocess.Popen(
            [python, str(HERE / "_start_side.py"), name, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=own | here,
            cwd=folder,
        )
        self._python = python
        self._application = self._answer()["application"]
        self.until_return: list[float] = []

    def measure(self, what: str) -> float:
        """Launch once; return the seconds until both nodes were there."""
        assert self._process.stdin is not None
        print(what, file=self._process.stdin, flush=True)
        answer = self._answer()
        if what == "line":
            self.until_return.append(answer["until_return"])
        return float(answer["seconds"])

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the side has ended: see the log"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the driver, and what local-cluster leaves in the installed PySpark."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        for work in Path(self._python).parent.parent.glob(
            f"lib/*/site-packages/pyspark/work/{self._application}"
        ):
            shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def running_sides() -> Iterator[dict[str, Side]]:
    """Run all sides, each with its warm session, for the length of the block."""
    with contextlib.ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="start-")))
        log = held.enter_context((HERE / "start.log").open("wb"))
        sides = {}
        for name in ("emberflow", *REQUIREMENTS):
            sides[name] = Side(name, folder / name, log)
            held.callback(sides[name].close)
        yield sides


def main() -> None:
    """Measure in turn, print the line."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else REPEATS
    with running_sides() as sides:
        lines = alternate({name: lambda s=side: s.measure("line") for name, side in sides.items()}, repeats)
        until_return = {name: summary(side.until_return, 2)["median"] for name, side in sides.items()}
        with_tensorflow = alternate(
            {name: lambda s=side: s.measure("tensorflow") for name, side in sides.items()}, WITH_TENSORFLOW
        )
    medians = {name: summary(figures) for name, figures in lines.items()}
    fastest = min(medians[name]["median"] for name in REQUIREMENTS)
    print_result(
        "start",
        {
            "seconds_to_first_line": medians,
            "ratio_to_faster_rival": round(medians["emberflow"]["median"] / fastest, 2),
            "seconds_until_return": until_return,
            "seconds_to_first_line_and_import_of_tensorflow": {
                name: summary(figures, 2) for name, figures in with_tensorflow.items()
            },
            "versions": {name: version(name) for name in ("pyspark", "tensorflow")} | REQUIREMENTS,
        },
    )


if __name__ == "__main__":
    main()
