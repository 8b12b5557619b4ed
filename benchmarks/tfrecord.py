"""How many rows does a CPU-second read from TFRecord files, or write to them?

Three tables: (a) 784 floats and a label, (b) 40 narrow columns, (c) images of 100 KB and a label. Written from
Parquet through Spark, read through Spark into nothing (``noop``). Sides: Emberflow's data source; protobuf row by
row in Python (``tf.train.Example`` in ``mapInArrow``, as one writes it by hand); Spark's own Parquet, for scale;
and for reading, on the same files in one process without Spark, ``tf.data`` with ``parse_example`` and
``ef.TFRecords`` (what the nodes of ``ef.run`` do). Of table (a) also with its floats packed into a binary column;
and ``tuned``, as the page on TFRecord says. What is read is five copies of what was written (protobuf reads one: it
is slow), since each query that reads through a Python source has a fixed cost, which is measured on a table of one
row. Where the variable ``EMBERFLOW_SPARK_TFRECORD_JAR`` names LinkedIn's jar (for Scala 2.12), also that, on
PySpark 3.5 in an environment of its own. CPU seconds are those of the whole process tree, JVM included; all sides
are warm and measured in turn.
``python -m benchmarks.tfrecord [REPEATS]``
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import alternate, cpu_seconds, print_result, summary

HERE = Path(__file__).parent
JAR = os.environ.get("EMBERFLOW_SPARK_TFRECORD_JAR", "")
REPEATS = 5
ROWS = {"a": 40_000, "b": 200_000, "c": 2_000}
FILES = 4
COPIES = 5
ONE = "one"
GOALS = {
    "write protobuf b": 10.0,
    "read tfdata a": 0.6,
    "read tfdata b": 0.6,
    "write jar": 1.0,
    "read jar": 1.0,
}


class Driver:
    """A process that reads or writes when told to."""

    def __init__(self, kind: str, folder: Path, log: IO[bytes]) -> None:
        python = _python_with_jar() if kind == "jar" else sys.executable
        here = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
        own = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "SPARK_HOME")}
        self.process = subprocess.Popen(
            [python, str(HERE / "tfrecord_side.py"), kind, str(folder), JAR],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=own | here | {"TF_CPP_MIN_LOG_LEVEL": "2"},
            cwd=folder,
        )
        self.ask(None)

    def rate(self, action: str, side: str, table: str) -> float:
        """Read or write once; return rows per CPU-second of the whole process tree."""
        copies = COPIES if action == "read" and side != "protobuf" else 1
        return copies * ROWS[table] / self.seconds(action, side, table, copies)

    def seconds(self, action: str, side: str, table: str, copies: int = 1) -> float:
        """Read or write once; return the CPU seconds of the whole process tree."""
        with cpu_seconds(self.process.pid) as used:
            self.ask([action, side, table, copies])
        return used.seconds

    def ask(self, what: Any) -> None:
        """Send one command and wait until it is done."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(what), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        assert answer.strip() == "done", "the side has ended: see benchmarks/tfrecord.log"

    def close(self) -> None:
        """End the process and its session."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait(60)


def _python_with_jar() -> str:
    folder = HERE / ".env-pyspark35"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run(
            [str(python), "-m", "pip", "install", "-q", "pyspark==3.5.*", "setuptools<81"], check=True
        )
        (folder / "complete").touch()
    return str(python)


def make_tables(folder: Path) -> None:
    """Write the three tables as Parquet."""
    random = np.random.default_rng(0)

    def floats(rows: int) -> dict[str, Any]:
        values = pa.array(random.random(784 * rows, dtype=np.float32))
        image = pa.FixedSizeListArray.from_arrays(values, 784).cast(pa.list_(pa.float32()))
        return {"image": image, "label": pa.array(random.integers(0, 10, rows))}

    def narrow(rows: int) -> dict[str, Any]:
        numbers = {f"int_{k}": pa.array(random.integers(0, 10 ** (1 + k // 2), rows)) for k in range(20)}
        fractions = {f"float_{k}": pa.array(random.random(rows, dtype=np.float32)) for k in range(18)}
        words = {f"word_{k}": pa.array([f"cat{n}" for n in random.integers(0, 1000, rows)]) for k in range(2)}
        return numbers | fractions | words

    def images(rows: int) -> dict[str, Any]:
        data = [random.bytes(100_000 + int(random.integers(0, 100))) for _ in range(rows)]
        return {"image": pa.array(data), "label": pa.array(random.integers(0, 10, rows))}

    for name, make in {"a": floats, "b": narrow, "c": images}.items():
        (folder / f"{name}.parquet").mkdir()
        for file in range(FILES):
            pq.write_table(
                pa.table(make(ROWS[name] // FILES)), folder / f"{name}.parquet" / f"{file}.parquet"
            )
    (folder / f"{ONE}.parquet").mkdir()
    pq.write_table(pa.table({"label": [1]}), folder / f"{ONE}.parquet" / "0.parquet")


@contextlib.contextmanager
def running_drivers() -> Iterator[dict[str, Driver]]:
    """Run all sides, warm, for the length of the block."""
    with contextlib.ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="tfrecord-")))
        log = held.enter_context((HERE / "tfrecord.log").open("wb"))
        make_tables(folder)
        drivers = {}
        for kind in ("spark", "tuned", "tfdata", "tfrecords", *(["jar"] if JAR else [])):
            drivers[kind] = Driver(kind, folder, log)
            held.callback(drivers[kind].close)
        yield drivers


def main() -> None:
    """Measure in turn, print the line."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else REPEATS
    rates: dict[str, dict[str, Any]] = {}
    with running_drivers() as drivers:
        for table in ROWS:
            for action in ("write", "read"):
                rates[f"{action} {table}"] = measure(drivers, action, table, repeats)
                print(
                    action, table, {side: each["median"] for side, each in rates[f"{action} {table}"].items()}
                )
        fixed = measure_fixed(drivers["spark"], repeats)
    found = {"rows_per_cpu_second": rates, "ratios": ratios(rates), "goals": GOALS}
    print_result("tfrecord", found | {"cpu_seconds_of_a_query_that_reads_one_row": fixed})


def measure_fixed(driver: Driver, repeats: int) -> dict[str, Any]:
    """Return the CPU seconds of reading a table of one row."""
    driver.ask(["write", "emberflow", ONE, 1])
    sides = {side: partial(driver.seconds, "read", side, ONE) for side in ("emberflow", "parquet")}
    for side in sides.values():
        side()
    return {side: summary(values, 2) for side, values in alternate(sides, repeats).items()}


def measure(drivers: dict[str, Driver], action: str, table: str, repeats: int) -> dict[str, Any]:
    """Let all sides do one thing in turn; return rows per CPU-second of each."""
    names = ["emberflow", "protobuf", "parquet"]
    names += ["tuned", "tfdata", "tfrecords"] if action == "read" else []
    names += ["packed"] if (action, table) == ("read", "a") else []
    names += ["jar"] if "jar" in drivers else []
    sides = {side: partial(drivers.get(side, drivers["spark"]).rate, action, side, table) for side in names}
    for side in sides.values():
        side()  # the first time is the compiler's
    return {side: summary(values, 0) for side, values in alternate(sides, repeats).items()}


def ratios(rates: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Return Emberflow's rate over that of each other side."""
    return {
        f"{what.split()[0]} {side} {what.split()[1]}": round(sides["emberflow"]["median"] / each["median"], 2)
        for what, sides in rates.items()
        for side, each in sides.items()
        if side != "emberflow"
    }


if __name__ == "__main__":
    main()
