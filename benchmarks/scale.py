"""What does the exchange of gradients cost as workers are added on one host?

`python -m benchmarks.scale` trains the same model on 1, 2, 4, 8 ... workers, as many as there are cores (`python -m
benchmarks.scale 2 4` chooses). Each is a process with one thread, rows of its own and four models, which it trains in
turn, epoch by epoch, so that other load hits all: *apart* exchanges nothing, *number* all-reduces one number per step
(waiting for the slowest is not counted as exchange), *exchange* is data-parallel training, *encrypted* the same
over encrypted sockets, as between hosts. It prints one JSON line: milliseconds per step of the slowest worker.
"""

import json
import os
import subprocess
import sys
from typing import Any

from benchmarks.allreduce import ROOT, introduce, rank_environment
from benchmarks.measure import summary

# Widths of hidden layers behind 784 inputs, rows of a worker's batch, steps of an epoch
MODELS = {"670k": ((512, 512), 128, 60), "4.2M": ((1170, 1170, 1170), 32, 20)}
TURNS = 7


def main() -> None:
    cores = len(os.sched_getaffinity(0))
    workers = [int(each) for each in sys.argv[1:] if each.isdigit()]
    workers = workers or [count for count in (1, 2, 4, 8, 16, 32) if count <= cores]
    sizes = [each for each in sys.argv[1:] if each in MODELS] or list(MODELS)
    figures = {f"{size}, {count} workers": run(size, count) for size in sizes for count in workers}
    print(json.dumps({"benchmark": "scale", "unit": "ms per step", "cores": cores, **figures}))


def run(size: str, workers: int) -> dict[str, Any]:
    """Return the milliseconds of each way, and the rows of *exchange* as shares of those of *apart* and *number*."""
    command = [sys.executable, "-m", "benchmarks.scale_side", size]
    children = [
        subprocess.Popen(
            [*command, str(rank)], cwd=ROOT, env=rank_environment(), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )
        for rank in range(workers)
    ]  # fmt: skip
    try:
        introduce(children)
        lines = [child.communicate(timeout=900)[0].strip().splitlines() for child in children]
    finally:
        for child in children:
            child.kill()
    taken: dict[str, list[float]] = json.loads(lines[0][-1])
    seen: dict[str, Any] = {way: summary(values, 2) for way, values in taken.items()}
    for base in ("apart", "number"):
        shares = [one / other for one, other in zip(taken[base], taken["exchange"], strict=True)]
        seen[f"share of {base}"] = summary(shares)
    return seen


if __name__ == "__main__":
    main()
