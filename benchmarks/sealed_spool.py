"""What does an encrypted spool cost: rows of 784 floats written, and read in shuffled epochs, beside a plain spool.

`python -m benchmarks.sealed_spool` prints rows per CPU-second of a plain spool, of an encrypted one that its reader
may hold decrypted, and of one of which it may hold a quarter; and one JSON line.
"""

import tempfile
import time
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from benchmarks.measure import alternate, print_result, summary
from emberflow._feed.arrays import KEY
from emberflow._feed.row_windows import group_columns, window_rows
from emberflow._feed.shards import merge_shards
from emberflow._feed.spool import Spool, SpoolFile, SpoolWriter
from emberflow._feed.staged_rows import fetch_from
from emberflow._feed.tensor_columns import plan_columns

ROWS, BATCH, WIDTH = 160_000, 1000, 784  # 500 MB
TURNS = 5


@dataclass(frozen=True)
class Side:
    """A kind of spool, and the part of it that its reader may hold decrypted."""

    encrypts: bool
    held: float = 1.0


SIDES = {
    "plain": Side(encrypts=False),
    "held": Side(encrypts=True),
    "quarter": Side(encrypts=True, held=0.25),
}


def main() -> None:
    written = alternate({name: lambda side=side: write_rate(side) for name, side in SIDES.items()}, TURNS)
    read: dict[str, list[float]] = {}
    opened: dict[str, list[float]] = {}
    for name, figures in alternate(
        {name: lambda side=side: read_rates(side) for name, side in SIDES.items()}, TURNS
    ).items():
        opened[name], read[name] = map(list, zip(*figures, strict=True))
    figures = {
        "rows_written_per_cpu_second": {name: summary(written[name], 0) for name in SIDES},
        "cpu_seconds_to_open": {name: summary(opened[name]) for name in SIDES},
        "shuffled_rows_per_cpu_second": {name: summary(read[name], 0) for name in SIDES},
    }
    for name, value in figures.items():
        print(f"{name}: {value}")
    print_result("sealed_spool", figures)


def write(side: Side) -> SpoolFile:
    values = pa.array(np.random.default_rng(0).random(BATCH * WIDTH, dtype=np.float32))
    lists = pa.ListArray.from_arrays(np.arange(BATCH + 1, dtype=np.int32) * WIDTH, values)
    with tempfile.TemporaryDirectory() as folder, SpoolWriter(folder, encrypts=side.encrypts) as writer:
        for start in range(0, ROWS, BATCH):
            keys = pa.array(np.arange(start, start + BATCH)[::-1])
            writer.write(pa.RecordBatch.from_arrays([keys, lists], [KEY, "x"]))
        return writer.finish()


def write_rate(side: Side) -> float:
    started = time.process_time()
    write(side).close()
    return ROWS / (time.process_time() - started)


def read_rates(side: Side) -> tuple[float, float]:
    """Return the CPU seconds until a spool is open, and rows per CPU-second of an epoch."""
    file = write(side)
    started = time.process_time()
    spool = Spool(file, memory=int(file.facts.bytes * side.held))
    file.close()
    opened = time.process_time() - started
    columns = list(plan_columns(merge_shards([file.facts])).values())
    fetch, window = fetch_from(spool, group_columns(columns)), window_rows(spool, columns)
    order = np.random.default_rng(0).permutation(ROWS)
    started = time.process_time()
    for start in range(0, ROWS, window):
        fetch(order, start, min(start + window, ROWS))
    return opened, ROWS / (time.process_time() - started)


if __name__ == "__main__":
    main()
