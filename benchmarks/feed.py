"""How fast do the rows of a DataFrame come into TensorFlow?

Four kinds of rows: (a) 784 floats as ``array<float>``, (b) 784 bytes as ``binary``, (c) 40 narrow columns,
(d) images of 100 kB. Sides, in turn, on two executors, over a DataFrame that Spark holds in memory: the limit
(``mapInArrow`` that counts, over the same DataFrame directed to the same two tasks), ``ef.run`` to a sink, ``ef.run``
to Keras ``fit`` of a linear model, and TensorFlowOnSpark 2.2.5's DataFeed to a sink, in its own environment. Over
Parquet files: the limit, ``ef.run`` to a sink, and ``ef.Parquet`` to a sink. Within the nodes: later epochs from the
spool beside the same rows as numpy arrays through tf.data.
``python -m benchmarks.feed [REPEATS] [SCALE] [KINDS]``
"""

import contextlib
import functools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from benchmarks._feed_rows import FEW, KINDS, NAMES
from benchmarks.measure import CpuSeconds, alternate, cpu_seconds, print_result
from benchmarks.start import FOREIGN, python_of

HERE = Path(__file__).parent
REPEATS = 3
SIDES = ("limit", "sink", "fit", "limit_files", "sink_files", "parquet")
GOALS = {
    "sink_over_limit": 0.85,
    "sink_over_tfos": {"a": 30, "c": 50},
    "later_over_first": 30,
    "later_over_numpy": 0.8,
    "parquet_over_limit_files": {"c": 5},
}


class Driver:
    """A process with a warm session, which feeds when told to.

    Args:
        name: The side; its first word is its environment, as in "tfos_infer".
        folder: For its files.
        log: For what it prints.
        scale: Of the rows.
        module: What it runs.
    """

    def __init__(
        self, name: str, folder: Path, log: IO[bytes], scale: float, module: str = "benchmarks.feed_side"
    ) -> None:
        python = python_of(name.split("_", maxsplit=1)[0])
        here = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
        here |= {"TFOS_SERVER_HOST": "127.0.0.1", "TF_CPP_MIN_LOG_LEVEL": "2", "FEED_SCALE": str(scale)}
        here |= {"PYTHONPATH": str(HERE.parent), "PYTHONPYCACHEPREFIX": str(HERE / ".env-pycache")}
        own = {key: value for key, value in os.environ.items() if key not in FOREIGN}
        self._process = subprocess.Popen(
            [python, "-m", module, name, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=own | here,
            cwd=folder,
        )
        self._name, self._python = name, python
        self._application = self._answer()["application"]

    def ask(self, what: str, kind: str, size: str) -> tuple[Any, float, CpuSeconds]:
        """Have a side do its work once; return what it found, seconds, and the CPU seconds of its processes."""
        assert self._process.stdin is not None
        with cpu_seconds(self._process.pid) as used:
            print(json.dumps([what, kind, size]), file=self._process.stdin, flush=True)
            answer = self._answer()
        return answer["value"], answer["seconds"], used

    def close(self) -> None:
        """End the process and its session, and delete what local-cluster leaves in the installed PySpark."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(120)
        folder = Path(self._python).parent.parent
        for work in folder.glob(f"lib/*/site-packages/pyspark/work/{self._application}"):
            shutil.rmtree(work, ignore_errors=True)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the side {self._name} has ended; see its log")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextlib.contextmanager
def running(name: str, folder: Path, scale: float, module: str = "benchmarks.feed_side") -> Iterator[Driver]:
    """Run a side's driver for the length of the block."""
    with (folder / f"{name}.log").open("wb") as log:
        try:
            driver = Driver(name, folder, log, scale, module)
            try:
                yield driver
            finally:
                driver.close()
        except BaseException:
            print(f"{name}:\n{(folder / f'{name}.log').read_text()[-6000:]}", file=sys.stderr)
            raise


class Measured:
    """One side over one kind of rows: seconds and CPU seconds of each time."""

    def __init__(self, driver: Driver, what: str, kind: str, rows: dict[str, int]) -> None:
        self._driver, self._what, self._kind, self.rows = driver, what, kind, rows
        self.seconds: dict[str, list[float]] = {size: [] for size in rows}
        self.cpu: dict[str, list[float]] = {size: [] for size in rows}
        self.used: CpuSeconds | None = None

    def once(self, size: str) -> float:
        """Feed the rows once."""
        found, seconds, self.used = self._driver.ask(self._what, self._kind, size)
        assert found == self.rows[size], (self._what, self._kind, size, found)
        self.seconds[size].append(seconds)
        self.cpu[size].append(self.used.seconds)
        return seconds

    def forget(self) -> None:
        """Begin anew: what was measured so far warmed up."""
        for figures in (*self.seconds.values(), *self.cpu.values()):
            figures.clear()

    def rates(self) -> dict[str, Any]:
        """Return rows per second and per CPU-second, in all and without the start of the side."""
        whole = next(size for size in self.rows if size != "few")
        rows = self.rows[whole]
        seconds, cpu = statistics.median(self.seconds[whole]), statistics.median(self.cpu[whole])
        start = {"seconds": 0.0, "cpu_seconds": 0.0}
        if "few" in self.rows:
            start["seconds"] = statistics.median(self.seconds["few"])
            start["cpu_seconds"] = statistics.median(self.cpu["few"])
        return {
            "rows_per_second": round(rows / (seconds - start["seconds"])),
            "rows_per_cpu_second": round(rows / (cpu - start["cpu_seconds"])),
            "start": {name: round(value, 2) for name, value in start.items()},
            "whole": {"rows_per_second": round(rows / seconds), "rows_per_cpu_second": round(rows / cpu)},
            "n": len(self.seconds[whole]),
        }


def measure_sides(
    drivers: dict[str, Driver], kind: str, repeats: int, scale: float
) -> dict[str, dict[str, Any]]:
    """Return the figures of all sides that start anew each time, for one kind of rows."""
    rows = {"all": int(KINDS[kind].rows * scale), "few": FEW}
    sides = {what: Measured(drivers["emberflow"], what, kind, rows) for what in SIDES}
    sides["tfos"] = Measured(drivers["tfos"], "tfos", kind, {"tfos": int(KINDS[kind].tfos_rows * scale)})
    for size in ("all", "few"):  # the JVMs compile; the limit is measured at its best
        drivers["emberflow"].ask("limit", kind, size)
        drivers["emberflow"].ask("limit_files", kind, size)
    drivers["emberflow"].ask("sink", kind, "all")
    drivers["tfos"].ask("tfos", kind, "tfos")
    alternate(calls({name: side for name, side in sides.items() if name != "fit"}), repeats)
    alternate(calls({"fit": sides["fit"]}), max(1, repeats - 1))  # it takes longest
    return {name: side.rates() for name, side in sides.items()}


def calls(sides: dict[str, Measured]) -> dict[str, Callable[[], float]]:
    """Return what measures each side once, for `alternate`."""
    return {
        f"{name} {size}": functools.partial(side.once, size)
        for name, side in sides.items()
        for size in side.seconds
    }


def measure_epochs(driver: Driver, kind: str) -> dict[str, dict[str, Any]]:
    """Return the rates of later epochs, rows of both nodes together: of whole epochs, and after the first batch.

    Until the first batch is there tf.data makes an iterator, which costs the same however long the epoch is.
    """
    nodes, _, _ = driver.ask("epochs", kind, "all")
    return {
        name: {**_epoch_rates(nodes, name, first=0), "after_first_batch": _epoch_rates(nodes, name, first=1)}
        for name in nodes[0]["epochs"]
    }


def _epoch_rates(nodes: list[dict[str, Any]], name: str, first: int) -> dict[str, int]:
    seconds, cpu = [], []
    rows = sum(node["rows"] - first * node["epochs"][name][0]["first_rows"] for node in nodes)
    for epochs in zip(*(node["epochs"][name] for node in nodes), strict=True):
        spans = [(epoch["moments"][first], epoch["moments"][-1]) for epoch in epochs]
        seconds.append(max(end[0] - start[0] for start, end in spans))
        cpu.append(sum(end[1] - start[1] for start, end in spans))
    return {
        "rows_per_second": round(rows / statistics.median(seconds)),
        "rows_per_cpu_second": round(rows / statistics.median(cpu)),
    }


def ratios(sides: dict[str, dict[str, Any]], epochs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return what the goals speak of, by CPU-second and by second."""

    def over(unit: str) -> dict[str, float]:
        rate = {name: side[unit] for name, side in (sides | epochs).items()}
        best_shuffled = max(rate["numpy_shuffled"], rate["numpy_gathered"])
        return {
            "sink_over_limit": round(rate["sink"] / rate["limit"], 2),
            "sink_over_limit_with_start": round(
                sides["sink"]["whole"][unit] / sides["limit"]["whole"][unit], 2
            ),
            "fit_over_limit": round(rate["fit"] / rate["limit"], 2),
            "sink_over_tfos": round(rate["sink"] / rate["tfos"], 1),
            "later_over_first": round(rate["spool_shuffled"] / rate["sink"], 1),
            "later_over_numpy_shuffled": round(rate["spool_shuffled"] / best_shuffled, 2),
            "later_over_numpy_in_order": round(rate["spool_in_order"] / rate["numpy_in_order"], 2),
            "sink_files_over_limit_files": round(rate["sink_files"] / rate["limit_files"], 2),
            "parquet_over_limit_files": round(rate["parquet"] / rate["limit_files"], 2),
        }

    return {unit: over(unit) for unit in ("rows_per_cpu_second", "rows_per_second")}


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else REPEATS
    scale = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    kinds = sys.argv[3] if len(sys.argv) > 3 else "".join(KINDS)
    found = {}
    with tempfile.TemporaryDirectory(prefix="emberflow-feed-") as name, contextlib.ExitStack() as held:
        folder = Path(name)
        drivers = {side: held.enter_context(running(side, folder, scale)) for side in ("emberflow", "tfos")}
        for kind in kinds:
            drivers["emberflow"].ask("write", kind, str(scale))
            sides = measure_sides(drivers, kind, repeats, scale)
            epochs = measure_epochs(drivers["emberflow"], kind)
            found[kind] = {"rows": NAMES[kind], **sides, **epochs, "ratios": ratios(sides, epochs)}
            print(json.dumps({kind: found[kind]}), flush=True)
            for rows in folder.glob(f"{kind}-*"):
                shutil.rmtree(rows)
    print_result("feed", {"kinds": found, "goals": GOALS, "repeats": repeats, "scale": scale})


if __name__ == "__main__":
    main()
