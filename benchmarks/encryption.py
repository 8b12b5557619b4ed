"""What does encryption cost: a step and an exchange of two workers over the ring, and rows from one node to another.

`python -m benchmarks.encryption` measures each with and without encryption, in turn and in the same processes, and
prints one JSON line: milliseconds per step and per exchange at 4.2 M parameters, rows per CPU-second, and ratios.
"""

import json
import secrets
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.allreduce import introduce, rank_environment
from benchmarks.measure import print_result, summary

ROOT = Path(__file__).parent.parent
TURNS = 9  # epochs, or blocks of exchanges, of each side
GOAL = 1.2  # most times the time per step
SIDES = ("plain", "encrypted")


def main() -> None:
    ring = together("ring", ranks=2)
    feed = together("feed", ranks=1)
    figures: dict[str, Any] = {}
    for name, by_side in ring.items():
        figures[name] = {side: summary(by_side[side]) for side in SIDES}
        figures[f"{name}_ratio"] = ratio(by_side)
    figures |= {
        "feed_rows_per_cpu_second": {side: summary(feed[side], 0) for side in SIDES},
        "feed_rows_per_cpu_second_ratio": ratio(feed),
        "goal": GOAL,
    }
    for name, value in figures.items():
        print(f"{name}: {value}")
    print_result("encryption", figures)


def ratio(figures: dict[str, list[float]]) -> float:
    """Return the median of the ratios of neighbouring measurements: a slow minute hits both."""
    pairs = zip(figures["plain"], figures["encrypted"], strict=True)
    return round(statistics.median(encrypted / plain for plain, encrypted in pairs), 3)


def together(what: str, ranks: int) -> Any:
    """Run one side's processes; return what the first of them measured."""
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.encryption_side", what, str(rank)],
            cwd=ROOT, env=rank_environment(), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    try:
        if ranks > 1:
            for _ in SIDES:
                introduce(children)
        lines = [child.communicate(timeout=600)[0].strip().splitlines() for child in children]
        return json.loads(lines[0][-1])
    finally:
        for child in children:
            child.kill()


def new_key() -> bytes:
    """Return a run's secret."""
    return secrets.token_bytes(32)


if __name__ == "__main__":
    main()
