"""The exchange alone, for `benchmarks.allreduce`: our ring beside MPI, the same arrays over ranks of this host.

MPI is MPICH by mpi4py, both from PyPI, in an environment of its own (``benchmarks/.env-mpi``, made on first use). All
ranks sum an array of float32 in place, again and again. ``python -m benchmarks.allreduce_mpi [REPEATS]``
"""

import os
import secrets
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import alternate, print_result, summary
from benchmarks.start import FOREIGN, python_of

HERE = Path(__file__).parent
FLOATS = {"84k": 84_000, "4.2M": 4_200_000, "25M": 25_000_000}
TIMES = {"84k": 300, "4.2M": 30, "25M": 8}  # how often one process group sums
RANKS = (2, 4)
REPEATS = 3
WITHIN = 300  # seconds for one process group
SIDES = ("ring", "ring_encrypted", "mpi")


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else REPEATS
    print_result("allreduce_mpi", measure(repeats))


def measure(repeats: int = REPEATS) -> dict[str, Any]:
    """Return milliseconds per sum of each side by ranks and size, and the ring's over MPI's."""
    figures: dict[str, Any] = {"unit": "ms per sum", "cores": len(os.sched_getaffinity(0))}
    for ranks in RANKS:
        for size in FLOATS:
            found = alternate({side: _turn(side, ranks, size) for side in SIDES}, repeats)
            medians = {side: statistics.median(values) for side, values in found.items()}
            ratio = {"ring_over_mpi": round(medians["ring"] / medians["mpi"], 2)}
            name = f"{size} x{ranks}"
            figures[name] = {side: summary(values, 3) for side, values in found.items()} | ratio
            print(f"{name}: {figures[name]}", file=sys.stderr, flush=True)
    return figures


def _turn(side: str, ranks: int, size: str) -> Callable[[], float]:
    return lambda: run(side, ranks, size)


def run(side: str, ranks: int, size: str) -> float:
    """Sum in so many processes; return the first rank's milliseconds per sum."""
    arguments = [str(HERE / "allreduce_sums.py"), side, str(FLOATS[size]), str(TIMES[size])]
    if side == "mpi":
        python = python_of("mpi")
        own = {key: value for key, value in os.environ.items() if key not in FOREIGN}
        command = [str(Path(python).parent / "mpiexec"), "-n", str(ranks), python, *arguments]
        said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=WITHIN, env=own)
        return float(said.stdout.split()[-1])
    children = [
        subprocess.Popen(
            [sys.executable, *arguments, str(rank)], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for rank in range(ranks)
    ]
    try:
        return _summed(children)
    finally:
        for child in children:
            child.kill()
            child.wait()


def _summed(children: list[Any]) -> float:
    """Tell each rank all addresses and the key; return what the first one measured."""
    addresses = [child.stdout.readline().strip() for child in children]
    key = secrets.token_hex(32)
    for child in children:
        child.stdin.write(" ".join([key, *addresses]) + "\n")
        child.stdin.flush()
    said = [child.communicate(timeout=WITHIN)[0] for child in children]
    return float(said[0].split()[-1])


if __name__ == "__main__":
    main()
