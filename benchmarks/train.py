"""What does training on Spark cost, beside the same without it and beside others?

1. Rows per CPU-second of the training process after the first epoch: Keras `fit` of a small CNN on arrays in memory,
   one process, against ``KerasEstimator`` with one worker.
2. Milliseconds per step of two workers: our ring against MultiWorkerMirroredStrategy with tf_keras (as in
   `benchmarks.allreduce`).
3. Seconds of a whole program, from its start to its exit: one epoch over MNIST as csv, two workers of one core;
   against TensorFlowOnSpark 2.2.5 after its own example, in an environment of its own.

``python -m benchmarks.train [REPEATS [ROWS]]``; with EMBERFLOW_MNIST set to the folder of the four idx files the rows
are MNIST's, else random ones of the same form.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import allreduce
from benchmarks.measure import alternate, print_result, summary
from benchmarks.start import FOREIGN, add, python_of

HERE = Path(__file__).parent
REPEATS, ROWS, EPOCHS = 3, 60_000, 4
MEMORY_ROWS = 20_000
GOALS = {"rows_per_cpu_second": 0.95, "ms_per_step_84k": 0.5, "ms_per_step_4.2M": 0.75, "csv_seconds": 1 / 3}


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else REPEATS
    rows = int(sys.argv[2]) if len(sys.argv) > 2 else ROWS
    tfos = python_of("tfos")
    add(Path(tfos), f"tf-keras=={version('tf-keras')}")
    sides = {"emberflow": (sys.executable, "csv_emberflow"), "tfos": (tfos, "csv_tfos")}
    with tempfile.TemporaryDirectory(prefix="train-") as folder:
        write_rows(Path(folder), rows)
        figures = {
            "memory": measure_memory(Path(folder), repeats),
            "steps": measure_steps(repeats),
            "csv": measure_csv(Path(folder), repeats, sides),
        }
    print_result("train", {**figures, "goals": GOALS, "versions": {"tensorflowonspark": "2.2.5"}})


def write_rows(folder: Path, rows: int) -> None:
    """Write the rows as csv, and some of them as arrays and as Parquet."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    images, labels = digits(rows)
    few = slice(0, min(rows, MEMORY_ROWS))
    np.savez(folder / "rows.npz", image=images[few].reshape(-1, 28, 28, 1), label=labels[few])
    table = pa.table(
        {"image": [each.tobytes() for each in images[few]], "label": labels[few].astype("int64")}
    )
    pq.write_table(table, folder / "rows.parquet")
    columns = [*images.reshape(rows, 784).T, labels]
    names = [f"c{place}" for place in range(785)]
    options = pa_csv.WriteOptions(include_header=False)
    pa_csv.write_csv(pa.table(columns, names=names), folder / "rows.csv", options)


def digits(rows: int) -> tuple[Any, Any]:
    """Return MNIST's training images and labels, or random bytes, four fifths of them zero as in MNIST."""
    import numpy as np

    if "EMBERFLOW_MNIST" in os.environ:
        from emberflow.tfrecord.idx_files import read_idx

        folder = Path(os.environ["EMBERFLOW_MNIST"])
        files = [next(iter(folder.glob(f"train-{kind}-ubyte*"))) for kind in ("images-idx3", "labels-idx1")]
        images, labels = (read_idx(str(file))[:rows] for file in files)
        return images, labels
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (rows, 28, 28), np.uint8) * (random.random((rows, 28, 28)) < 0.2)
    return images.astype(np.uint8), random.integers(0, 10, rows, np.uint8)


def measure_memory(folder: Path, repeats: int) -> dict[str, Any]:
    found: dict[str, list[dict[str, float]]] = {"in_memory": [], "estimator": []}

    def side(name: str) -> Callable[[], float]:
        def measure() -> float:
            found[name].append(program(sys.executable, name, folder, EPOCHS))
            return found[name][-1]["rows_per_cpu_second"]

        return measure

    per_cpu = alternate({name: side(name) for name in found}, repeats)
    medians = {name: statistics.median(values) for name, values in per_cpu.items()}
    per_second = {name: [each["rows_per_second"] for each in values] for name, values in found.items()}
    return {
        "rows_per_cpu_second": {name: summary(values, 0) for name, values in per_cpu.items()},
        "rows_per_second": {name: summary(values, 0) for name, values in per_second.items()},
        "ratio": round(medians["estimator"] / medians["in_memory"], 3),
    }


def measure_steps(repeats: int) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for size in allreduce.SIZES:
        ways = {way: lambda way=way, size=size: allreduce.run(way, size) for way in ("ring", "mirrored")}
        found = alternate(ways, repeats)
        ratio = statistics.median(found["ring"]) / statistics.median(found["mirrored"])
        figures[size] = {way: summary(values) for way, values in found.items()} | {"ratio": round(ratio, 3)}
    return figures


def measure_csv(folder: Path, repeats: int, sides: dict[str, tuple[str, str]]) -> dict[str, Any]:
    """Return the seconds of whole programs: each side is a Python and a program of `train_side`."""
    rows: dict[str, Any] = {}

    def side(name: str) -> Callable[[], float]:
        def measure() -> float:
            started = time.monotonic()
            rows[name] = program(*sides[name], folder, 1)
            return time.monotonic() - started

        return measure

    found = alternate({name: side(name) for name in sides}, repeats)
    ratio = statistics.median(found["emberflow"]) / statistics.median(found["tfos"])
    seconds = {name: summary(values, 1) for name, values in found.items()}
    return {"seconds": seconds, "ratio": round(ratio, 3), "trained": rows}


def program(python: str, name: str, folder: Path, epochs: int) -> dict[str, Any]:
    """Run a program to its end; return what it says last."""
    here = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
    here |= {"TFOS_SERVER_HOST": "127.0.0.1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    here |= {"PYTHONPYCACHEPREFIX": str(HERE / ".env-pycache")}  # all sides have compiled modules
    own = {key: value for key, value in os.environ.items() if key not in FOREIGN}
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=folder) as work:
        for file in folder.glob("rows.*"):
            (Path(work) / file.name).symlink_to(file)
        command = [python, str(HERE / "train_side.py"), name, work, str(epochs)]
        with (HERE / "train.log").open("ab") as log:
            done = subprocess.run(
                command, check=False, stdout=subprocess.PIPE, stderr=log, env=own | here, cwd=work, text=True
            )
    assert done.returncode == 0, f"{name} has failed: see benchmarks/train.log"
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    print(f"{name}: {found}", file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    main()
