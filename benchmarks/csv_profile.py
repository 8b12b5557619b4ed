"""Where do the CPU seconds of a whole program go that trains on a csv file? By kind of process.

The program is that of `benchmarks.train`: one epoch over MNIST as csv by ``KerasEstimator``, two workers of one core,
from the start of Python to its exit. On a machine with more busy processes than cores, CPU seconds are what the clock
shows, and others' load changes them less. ``python -m benchmarks.csv_profile [REPEATS [ROWS]]``
"""

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import train
from benchmarks.measure import cpu_seconds, print_result, summary

REPEATS = 3
OURS = "this benchmark"
KINDS = {  # part of a command line to the kind of process, the first that fits
    "_node.main": "nodes",
    "_keeper": "keepers",
    "pyspark.daemon": "Spark's Python workers",
    "pyspark/daemon": "Spark's Python workers",
    "CoarseGrainedExecutorBackend": "executors' JVMs",
    "org.apache.spark": "the driver's JVM",
    "train_side": "the driver's Python",
    "csv_profile": OURS,
}
EVERY = 0.05  # seconds between two looks at the processes


def kind_of(command: str) -> str:
    """Return the kind of a process by its command line."""
    return next((kind for part, kind in KINDS.items() if part in command), "others")


def measure(folder: Path) -> dict[str, Any]:
    """Run the program once; return its seconds, the CPU seconds of each kind, and what it says itself."""
    started = time.monotonic()
    with cpu_seconds(every=EVERY) as cpu:
        trained = train.program(sys.executable, "csv_emberflow", folder, 1)
    seconds = time.monotonic() - started
    kinds = cpu.by_kind(kind_of)
    kinds.pop(OURS)
    return {"seconds": seconds, "cpu": sum(kinds.values()), "kinds": kinds, "trained": trained}


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else REPEATS
    rows = int(sys.argv[2]) if len(sys.argv) > 2 else train.ROWS
    with tempfile.TemporaryDirectory(prefix="csv-profile-") as folder:
        train.write_rows(Path(folder), rows)
        found = [measure(Path(folder)) for _ in range(repeats)]
    kinds = {name for each in found for name in each["kinds"]}
    by_kind = {
        name: round(statistics.median(each["kinds"].get(name, 0.0) for each in found), 1) for name in kinds
    }
    print_result(
        "csv_profile",
        {
            "rows": rows,
            "cpu_seconds": summary([each["cpu"] for each in found], 1),
            "cpu_seconds_by_kind": dict(sorted(by_kind.items(), key=lambda item: -item[1])),
            "seconds": summary([each["seconds"] for each in found], 1),
            "phases": [each["trained"]["seconds"] for each in found],
            "load": os.getloadavg()[0],
        },
    )


if __name__ == "__main__":
    main()
