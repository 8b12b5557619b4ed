"""How does the time of one exchange grow with the number of ranks? A simulation and a model; no process is started.

`python -m benchmarks.latency` lets 2, 8, 64 and 1,000 ranks exchange by the very rounds that the ring uses
(`strategies/transport/circulant.py`), on a clock of its own: a message of b bytes arrives latency + b / bandwidth
seconds after it was sent, 0.2 ms and 1.25 GB/s (10 Gbit/s). Each number is followed through all rounds: a wrong
schedule gives a wrong sum. Beside it: the model, and a ring in which each rank sends to its neighbour only. It prints
one JSON line.
"""

import json
from collections.abc import Callable

import numpy as np

from emberflow.strategies.transport.circulant import Round, distances, gather_rounds, reduce_rounds

LATENCY = 0.2e-3
BANDWIDTH = 1.25e9
RANKS = (2, 8, 64, 1000)
SIZES = {"8 bytes": 8, "4 MB": 4 << 20}
SMALL = 1 << 14

Schedule = tuple[Round, ...]


def main() -> None:
    figures = {}
    for size, nbytes in SIZES.items():
        for ranks in RANKS:
            seconds = {
                "rounds": simulate(ranks, nbytes),
                "model": model(ranks, nbytes),
                "ring": ring(ranks, nbytes),
            }
            figures[f"{size}, {ranks} ranks"] = {way: round(each * 1000, 2) for way, each in seconds.items()}
            print(f"{size:>8}, {ranks:>5} ranks:", figures[f"{size}, {ranks} ranks"], flush=True)
    print(json.dumps({"benchmark": "latency", "unit": "ms", "latency_ms": LATENCY * 1000, **figures}))


def simulate(ranks: int, nbytes: int) -> float:
    """Return the seconds until the last rank has the sum; small vectors are gathered, large ones reduced before."""
    clocks = np.zeros(ranks)
    if nbytes <= SMALL:
        held = np.eye(ranks, dtype=np.int32)  # rank, block: each has its own
        held = _pass(held, clocks, gather_rounds, nbytes, adds=False)
    else:
        held = np.ones((ranks, ranks), np.int32)  # each has its part of every block
        held = _pass(held, clocks, reduce_rounds, nbytes / ranks, adds=True)
        assert (held.diagonal() == ranks).all()
        held = np.diag(held.diagonal())
        held = _pass(held, clocks, gather_rounds, nbytes / ranks, adds=False)
    assert (held == (1 if nbytes <= SMALL else ranks)).all()
    return float(clocks.max())


def _pass(
    held: np.ndarray,
    clocks: np.ndarray,
    rounds_of: Callable[[int, int], Schedule],
    block: float,
    *,
    adds: bool,
) -> np.ndarray:
    """Let all ranks go through their rounds; return what each then has of each block."""
    ranks = len(held)
    schedules = [rounds_of(rank, ranks) for rank in range(ranks)]
    for number in range(len(schedules[0])):
        before, started = held.copy(), clocks.copy()
        for rank, schedule in enumerate(schedules):
            each = schedule[number]
            left = (rank - (1 << each.link)) % ranks
            assert set(schedules[left][number].sent) == set(each.received)
            blocks = list(each.received)
            held[rank, blocks] = before[left, blocks] + (before[rank, blocks] if adds else 0)
            sending = len(blocks) * block / BANDWIDTH
            clocks[rank] = max(started[rank], started[left] + LATENCY) + sending
    return held


def model(ranks: int, nbytes: int) -> float:
    """Return what the rounds should take: their number times the latency, and the bytes of one rank once."""
    rounds = len(distances(ranks))
    if nbytes <= SMALL:
        return rounds * LATENCY + (ranks - 1) * nbytes / BANDWIDTH
    return 2 * (rounds * LATENCY + (ranks - 1) / ranks * nbytes / BANDWIDTH)


def ring(ranks: int, nbytes: int) -> float:
    """Return the same for a ring of neighbours."""
    if nbytes <= SMALL:
        return (ranks - 1) * (LATENCY + nbytes / BANDWIDTH)
    return 2 * (ranks - 1) * (LATENCY + nbytes / ranks / BANDWIDTH)


if __name__ == "__main__":
    main()
