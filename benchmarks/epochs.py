"""How fast are later epochs from the spool, beside the same rows as arrays in memory? Without Spark.

The rows of one node of `benchmarks.feed`, with keys in another order than that of arrival, are spooled; then epochs
through tf.data are timed in turn: from the spool, shuffled and in order, and from numpy arrays, shuffled as Keras
does, by tf.data's own ``shuffle``, and in order. Each kind of rows has a process of its own, with a node's settings.
Ratios are medians of those of neighbouring epochs, by CPU seconds of the process and by the clock.
``python -m benchmarks.epochs [EPOCHS] [SCALE] [KINDS]``
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import _feed_nodes as nodes
from benchmarks._feed_rows import KINDS, NAMES, WRITE_BYTES, rows_of
from benchmarks.measure import print_result
from emberflow._feed.arrays import KEY
from emberflow._feed.dataset import DatasetOptions, Shard
from emberflow._feed.feed import Feed
from emberflow._feed.shards import merge_shards
from emberflow._feed.spool import Spool, SpoolFile, SpoolWriter
from emberflow._task.node_setup import MALLOC

EPOCHS = 5
NODES = 2  # the rows of `benchmarks.feed` are those of two
GOALS = {"a": 1.0, "b": 1.0, "c": 1.0, "d": 0.5}
BEST = ("numpy_shuffled", "numpy_gathered")


class Node:
    """What the nodes of the feed benchmark use of their context, over a spool of this process."""

    def __init__(self, file: SpoolFile) -> None:
        shard = Shard(name="train", rank=0, spool=Spool(file), facts=merge_shards([file.facts]))
        self._feed = Feed({"train": shard})

    def rows(self) -> int:
        """Return how many rows there are."""
        return self._feed.rows("train")

    def arrow(self) -> Iterator[Any]:
        """Return them as record batches."""
        return self._feed.arrow("train")

    def dataset(self, **options: Any) -> Any:
        """Return them as a `tf.data.Dataset`."""
        return self._feed.dataset("train", DatasetOptions(**options))


def batches_of(kind: str, rows: int) -> Iterator[Any]:
    """Yield rows as Spark delivers them: some megabytes at a time, keys in no order."""
    keys = np.random.default_rng(0).permutation(rows)
    step = min(10_000, max(1, WRITE_BYTES // KINDS[kind].row_bytes))
    for start in range(0, rows, step):
        ids = np.arange(start, min(start + step, rows))
        batch = rows_of(kind, ids, np.random.default_rng(start))
        yield batch.append_column(KEY, pa.array(keys[ids]))


def measure(kind: str, rows: int, epochs: int) -> dict[str, Any]:
    """Time the epochs of one kind of rows in this process."""
    with tempfile.TemporaryDirectory() as folder, SpoolWriter(folder) as writer:
        for batch in batches_of(kind, rows):
            writer.write(batch)
        file = writer.finish()
    try:
        return nodes.epochs(Node(file), kind, epochs)
    finally:
        file.close()


def in_a_process(kind: str, scale: float, epochs: int) -> dict[str, Any]:
    """Time them in a process that is set up as a node is."""
    command = [sys.executable, "-m", "benchmarks.epochs", "--side", kind, str(scale), str(epochs)]
    settings = MALLOC | dict(os.environ) | {"TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(command, env=settings, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def figures_of(found: dict[str, Any]) -> dict[str, Any]:
    """Return rates and CPU seconds of each side, and the ratios that the goals speak of."""
    spans = {side: [_spans(epoch) for epoch in epochs] for side, epochs in found["epochs"].items()}
    sides = {}
    for side, epochs in spans.items():
        seconds, cpu = (statistics.median(figures) for figures in zip(*epochs, strict=True))
        sides[side] = {
            "rows_per_cpu_second": round(found["rows"] / cpu),
            "rows_per_second": round(found["rows"] / seconds),
            "cpu_seconds": round(cpu, 4),
        }
    ratios = {}
    for unit, at in (("rows_per_cpu_second", 1), ("rows_per_second", 0)):
        best = min(BEST, key=lambda side: statistics.median(epoch[at] for epoch in spans[side]))
        ratios[unit] = {
            "shuffled_over_best_numpy": _ratio(spans["spool_shuffled"], spans[best], at),
            "in_order_over_numpy": _ratio(spans["spool_in_order"], spans["numpy_in_order"], at),
        }
    return {"rows": found["rows"], "sides": sides, "ratios": ratios, "n": len(spans["spool_shuffled"])}


def _spans(epoch: dict[str, Any]) -> tuple[float, float]:
    start, end = epoch["moments"][0], epoch["moments"][-1]
    return end[0] - start[0], end[1] - start[1]


def _ratio(mine: list[tuple[float, float]], other: list[tuple[float, float]], at: int) -> float:
    pairs = zip(mine, other, strict=True)
    return round(statistics.median(theirs[at] / ours[at] for ours, theirs in pairs), 2)


def main() -> None:
    epochs = int(sys.argv[1]) if len(sys.argv) > 1 else EPOCHS
    scale = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    kinds = sys.argv[3] if len(sys.argv) > 3 else "".join(KINDS)
    found = {}
    for kind in kinds:
        found[kind] = {"kind": NAMES[kind], **figures_of(in_a_process(kind, scale, epochs))}
        print(json.dumps({kind: found[kind]}), flush=True)
    print_result("epochs", {"kinds": found, "goals": GOALS, "epochs": epochs, "scale": scale})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--side"]:
        kind, scale, epochs = sys.argv[2:]
        rows = int(KINDS[kind].rows * float(scale)) // NODES
        print(json.dumps(measure(kind, rows, int(epochs))), flush=True)
    else:
        main()
