"""How many rows does a CPU-second score, and a second by the clock?

An MLP (784, 128, 10) and a small CNN on 784 numbers a row, stored in Parquet as ``array<float>`` and as ``binary``
(float32), by ``ef.predict``, by ``mapInArrow`` without a model (the limit: rows in, a constant of the answers' size
out), by Spark's ``predict_batch_udf`` and by a ``pandas_udf``, all in turn in one warm session of two executors; and
by TensorFlowOnSpark's ``TFModel`` in its own environment (``array<float>`` only: it does not read binary columns
right). All keep the row's number but TFModel, which keeps nothing. CPU time is also given by kind of process.
``python -m benchmarks.predict [REPEATS] [MODEL]``; with a model, for that one and without TFModel.
"""

import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from benchmarks.measure import alternate, cpu_seconds, print_result, summary
from benchmarks.start import python_of

HERE = Path(__file__).parent
REPEATS = 5
ROWS = 100_000
MODELS = ("mlp", "cnn")
KINDS = ("array", "binary")
SIDES = ("no_model", "emberflow", "predict_batch_udf", "pandas_udf")
TFOS_ROWS = 6_000  # of the same files: it has a fiftieth of the others' rows per second
GOALS = {"no_model": 0.85, "predict_batch_udf": {"mlp": 1.3, "cnn": 1.05}, "tfmodel": 10.0}


@dataclass
class Noted:
    """What was seen of each side: rows per second by the clock, CPU microseconds per row by kind of process."""

    by_clock: dict[str, list[float]] = field(default_factory=dict)
    parts: dict[str, dict[str, list[float]]] = field(default_factory=dict)


def kind_of_process(command: str) -> str:
    """Tell who a process is from its command line."""
    if "CoarseGrainedExecutorBackend" in command:
        return "executors"
    if "pyspark.daemon" in command:
        return "python_workers"
    return "driver_jvm" if "java" in command.split(" ", maxsplit=1)[0] else "driver_python"


class Driver:
    """A process with a warm session, which scores when told to."""

    def __init__(self, name: str, folder: Path, log: IO[bytes]) -> None:
        python = python_of(name)
        here = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
        own = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "SPARK_HOME")}
        self.process = subprocess.Popen(
            [python, str(HERE / "predict_side.py"), name, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=own | here | {"TF_CPP_MIN_LOG_LEVEL": "2"},
            cwd=folder,
        )
        self._ask(None)

    def rate(self, side: str, model: str, kind: str, rows: int, noted: "Noted") -> float:
        """Score once; note rows per second and who used the CPU; return rows per CPU-second of all processes."""
        started = time.perf_counter()
        with cpu_seconds(self.process.pid) as used:
            self._ask([side, model, kind, rows])
        noted.by_clock.setdefault(side, []).append(rows / (time.perf_counter() - started))
        for process, seconds in used.by_kind(kind_of_process).items():
            noted.parts.setdefault(side, {}).setdefault(process, []).append(seconds / rows * 1e6)
        return rows / used.seconds

    def close(self) -> None:
        """End the process and its session."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait(60)

    def _ask(self, order: Any) -> None:
        if order is not None:
            assert self.process.stdin is not None
            print(json.dumps(order), file=self.process.stdin, flush=True)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("done"):
                return
        raise SystemExit("a side has ended; see its log")


@contextlib.contextmanager
def running(name: str, folder: Path) -> Iterator[Driver]:
    """Run a side's driver for the length of the block."""
    with (folder / f"{name}.log").open("wb") as log:
        driver = Driver(name, folder, log)
        try:
            yield driver
        except BaseException:
            print((folder / f"{name}.log").read_text()[-3000:], file=sys.stderr)
            raise
        finally:
            driver.close()


def measure(drivers: dict[str, Driver], model: str, kind: str, repeats: int) -> dict[str, Any]:
    """Return the figures of all sides for one model on one kind of column."""
    home = drivers["emberflow"]

    noted = Noted()

    def of(driver: Driver, side: str, rows: int) -> Callable[[], float]:
        return lambda: driver.rate(side, model, kind, rows, noted)

    sides = {side: of(home, side, ROWS) for side in SIDES}
    if kind == "array" and "tfos" in drivers:
        sides["tfmodel"] = of(drivers["tfos"], "tfmodel", TFOS_ROWS)
    for warm_up in sides.values():
        warm_up()
    noted.by_clock.clear()
    noted.parts.clear()
    figures = {side: summary(rates, 0) for side, rates in alternate(sides, repeats).items()}
    ours = figures["emberflow"]["median"]
    ratios = {side: round(ours / figures[side]["median"], 2) for side in figures if side != "emberflow"}
    clock = {side: summary(rates, 0) for side, rates in noted.by_clock.items()}
    return {
        "rows_per_cpu_second": figures,
        "emberflow_over": ratios,
        "rows_per_second": clock,
        "emberflow_over_by_clock": {
            side: round(clock["emberflow"]["median"] / each["median"], 2)
            for side, each in clock.items()
            if side != "emberflow"
        },
        "cpu_microseconds_per_row": {
            side: {process: round(statistics.median(each), 1) for process, each in parts.items()}
            for side, parts in noted.parts.items()
        },
    }


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else REPEATS
    models = tuple(sys.argv[2:3]) or MODELS
    names = ("emberflow",) if sys.argv[2:] else ("emberflow", "tfos")
    with tempfile.TemporaryDirectory(prefix="emberflow-predict-") as name, contextlib.ExitStack() as held:
        folder = Path(name)
        subprocess.run([sys.executable, str(HERE / "predict_side.py"), "models", name], check=True)
        drivers = {side: held.enter_context(running(side, folder)) for side in names}
        found = {}
        for model, kind in itertools.product(models, KINDS):
            found[f"{model}_{kind}"] = measure(drivers, model, kind, repeats)
            print(model, kind, found[f"{model}_{kind}"], flush=True)
    print_result("predict", {"cases": found, "goals": GOALS, "rows": ROWS})


if __name__ == "__main__":
    main()
