"""How many rows does a CPU-second bring to the nodes of a live cluster, and through them?

``cluster.train`` of a DataFrame (784 floats and a label), ``cluster.infer`` of the same, and ``cluster.train`` of an
RDD of Python tuples, on two executors, with the data in Spark's memory; beside TensorFlowOnSpark 2.2.5 in its own
environment (`TFCluster.train`, `TFCluster.inference` and `DataFeed`) and beside the limit: Spark alone, bringing the
same rows to a Python function that drops them. Nodes take the rows and drop them, or reply one number per row.
``python -m benchmarks.live [REPEATS] [SCALE]``
"""

import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks._feed_rows import KINDS
from benchmarks.feed import Driver, Measured, calls, running
from benchmarks.live_side import TUPLES
from benchmarks.measure import alternate, print_result

REPEATS = 3
KIND = "a"
TFOS = ("tfos_train", "tfos_infer")
CASES = {  # what is compared: sides, our own first, the limit last
    "train_frame": ("stream", "tfos_train", "limit_stream"),
    "train_frame_rounds": ("rounds", "tfos_train", "limit"),
    "infer_frame": ("infer", "tfos_infer", "limit_infer"),
    "train_tuples": ("stream_tuples", "tfos_tuples", "limit_tuples"),
    "train_tuples_rounds": ("rounds_tuples", "tfos_tuples", "limit_tuples"),
}
GOALS = {"train_frame": 20, "infer_frame": 10, "train_tuples": 3}
KINDS_OF_PROCESSES = {
    "CoarseGrainedExecutorBackend": "executors' JVMs",
    "org.apache.spark": "driver's JVM",
    "pyspark.daemon": "Python workers",
    "benchmarks.": "driver's Python",
    "emberflow": "nodes",
}


def kind_of(command: str) -> str:
    """Tell the kind of a process from its command line.

    >>> kind_of("python -m pyspark.daemon pyspark.worker")
    'Python workers'
    """
    return next((kind for word, kind in KINDS_OF_PROCESSES.items() if word in command), "other")


def sides(drivers: dict[str, Driver], scale: float) -> dict[str, Measured]:
    """Return all sides by name."""
    frame = {"all": int(KINDS[KIND].rows * scale)}, {"tfos": int(KINDS[KIND].tfos_rows * scale)}
    tuples = {"all": int(TUPLES["all"] * scale)}, {"tfos": int(TUPLES["tfos"] * scale)}
    ours = drivers["emberflow"]
    of_frames = ("rounds", "stream", "infer", "limit", "limit_stream", "limit_infer")
    of_tuples = ("rounds_tuples", "stream_tuples", "limit_tuples")
    return {
        **{what: Measured(ours, what, KIND, frame[0]) for what in of_frames},
        **{what: Measured(ours, what, KIND, tuples[0]) for what in of_tuples},
        "tfos_train": Measured(drivers["tfos_train"], "tfos", KIND, frame[1]),
        "tfos_tuples": Measured(drivers["tfos_train"], "tuples", KIND, tuples[1]),
        "tfos_infer": Measured(drivers["tfos_infer"], "infer", KIND, frame[1]),
    }


def figures(side: Measured) -> dict[str, Any]:
    """Return the rates of a side, and CPU-milliseconds per thousand rows of each kind of processes, the last time."""
    assert side.used is not None
    (rows,) = side.rows.values()
    kinds = side.used.by_kind(kind_of)
    return {
        "rows": rows,
        **{
            name: value
            for name, value in side.rates().items()
            if name in ("rows_per_cpu_second", "rows_per_second", "n")
        },
        "cpu_ms_per_1000_rows": {
            kind: round(1e6 * seconds / rows, 1) for kind, seconds in sorted(kinds.items())
        },
    }


def ratios(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return, for each case, our own rate over TensorFlowOnSpark's and over the limit."""

    def over(one: str, other: str, unit: str) -> float:
        return round(found[one][unit] / found[other][unit], 2)

    return {
        case: {
            "over_tfos": over(ours, tfos, "rows_per_cpu_second"),
            "over_tfos_by_the_clock": over(ours, tfos, "rows_per_second"),
            "over_limit": over(ours, limit, "rows_per_cpu_second"),
            "limit_over_tfos": over(limit, tfos, "rows_per_cpu_second"),
        }
        for case, (ours, tfos, limit) in CASES.items()
    }


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else REPEATS
    scale = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    with tempfile.TemporaryDirectory(prefix="emberflow-live-") as name, contextlib.ExitStack() as held:
        drivers = {
            side: held.enter_context(running(side, Path(name), scale, "benchmarks.live_side"))
            for side in ("emberflow", *TFOS)
        }
        drivers["emberflow"].ask("write", KIND, str(scale))
        measured = sides(drivers, scale)
        turns = calls(measured)
        for warm_up in turns.values():
            warm_up()
        for what, side in measured.items():
            print("warming up", json.dumps({what: figures(side)}), flush=True)
            side.forget()
        alternate(turns, repeats)
        found = {what: figures(side) for what, side in measured.items()}
        for what, each in found.items():
            print(json.dumps({what: each}), flush=True)
    load = os.getloadavg()[1]
    print_result(
        "live",
        {
            "sides": found,
            "ratios": ratios(found),
            "goals": GOALS,
            "repeats": repeats,
            "scale": scale,
            "load": load,
        },
    )


if __name__ == "__main__":
    main()
