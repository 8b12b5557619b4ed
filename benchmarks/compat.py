"""How fast do programs for TensorFlowOnSpark run on `emberflow-compat`, not changed by a line?

Each program runs with TensorFlowOnSpark 2.2.5 in an environment of its own, and with emberflow-compat, in turn:

1. Rows per CPU-second of all processes: nodes call ``DataFeed.next_batch(100)`` and drop the rows, an RDD of tuples
   (784 floats and a label) in Spark's memory.
2. Seconds of a whole program, from its start to its exit: one epoch over MNIST as csv through InputMode.SPARK, two
   workers of one core, after TensorFlowOnSpark's own example (as in `benchmarks.train`).

``python -m benchmarks.compat [REPEATS] [SCALE]``; with EMBERFLOW_MNIST set to the folder of the four idx files the
rows of the second are MNIST's, else random ones of the same form.
"""

import contextlib
import json
import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import train
from benchmarks.feed import Measured, calls, running
from benchmarks.live import KIND, figures
from benchmarks.live_side import TUPLES
from benchmarks.measure import alternate, print_result
from benchmarks.start import add, python_of

REPEATS = 3
SIDES = ("emberflow", "tfos")
SIZE = "tfos"  # the same rows for both
GOALS = {"next_batch": 3, "mnist": 0.7}


def measure_next_batch(folder: Path, repeats: int, scale: float) -> dict[str, Any]:
    """Return the rates of both sides, and how many times the old one ours is."""
    with contextlib.ExitStack() as held:
        sides = {}
        for name in SIDES:
            (folder / name).mkdir()
            driver = held.enter_context(running(name, folder / name, scale, "benchmarks.compat_side"))
            sides[name] = Measured(driver, "tuples", KIND, {SIZE: int(TUPLES[SIZE] * scale)})
        turns = calls(sides)
        for warm_up in turns.values():
            warm_up()
        for side in sides.values():
            side.forget()
        alternate(turns, repeats)
        found: dict[str, Any] = {name: figures(side) for name, side in sides.items()}
    units = {"ratio": "rows_per_cpu_second", "ratio_by_the_clock": "rows_per_second"}
    ratios = {name: round(found["emberflow"][unit] / found["tfos"][unit], 2) for name, unit in units.items()}
    return found | ratios


def measure_mnist(folder: Path, repeats: int, scale: float, tfos: str) -> dict[str, Any]:
    """Return the seconds of both sides, and ours over those of the old one."""
    train.write_rows(folder, int(train.ROWS * scale))
    program = "csv_tfos"  # the same for both: which library it imports depends on its Python
    return train.measure_csv(
        folder, repeats, {"emberflow": (sys.executable, program), "tfos": (tfos, program)}
    )


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else REPEATS
    scale = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    tfos = python_of("tfos")
    add(Path(tfos), f"tf-keras=={version('tf-keras')}")
    with tempfile.TemporaryDirectory(prefix="emberflow-compat-") as name:
        fed = measure_next_batch(Path(name), repeats, scale)
        print(json.dumps({"next_batch": fed}), flush=True)
        mnist = measure_mnist(Path(name), repeats, scale, tfos)
    about = {"goals": GOALS, "repeats": repeats, "scale": scale, "load": os.getloadavg()[1]}
    print_result("compat", {"next_batch": fed, "mnist": mnist, **about})


if __name__ == "__main__":
    main()
