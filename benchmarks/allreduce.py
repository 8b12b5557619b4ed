"""What does a step of synchronous training cost on two workers: our ring against MultiWorkerMirroredStrategy.

`python -m benchmarks.allreduce` trains the same stack of five dense layers in each way, two processes on this
host, and prints one JSON line: milliseconds per step, the median of the epochs after the first; and of the exchange
alone, beside MPI (`benchmarks.allreduce_mpi`), on 2 and 4 ranks. `... allreduce ring mpi` measures these two only.
"""

import json
import os
import secrets
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from emberflow._task.node_setup import MALLOC

SIZES = {"84k": 155, "4.2M": 1170}  # width of the layers
STEPS = {"84k": 150, "4.2M": 20}
EPOCHS = 6
ROWS = 32  # in a batch of one worker
WAYS = ("one", "ring", "collectives", "mirrored")
ROOT = Path(__file__).parent.parent


def main() -> None:
    ways = sys.argv[1:] or [*WAYS, "mpi"]
    figures: dict[str, Any] = {
        f"{way} {size}": run(way, size) for size in SIZES for way in ways if way != "mpi"
    }
    if "mpi" in ways:
        from benchmarks.allreduce_mpi import measure

        figures["exchange"] = measure()
    print(json.dumps({"benchmark": "allreduce", "unit": "ms per step", **figures}))


def rank_environment() -> dict[str, str]:
    """Return the environment of a worker: quiet, without GPUs, and with the memory settings that nodes have."""
    return os.environ | MALLOC | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}


def run(way: str, size: str) -> float:
    """Train with one or two processes; return the chief's milliseconds per step."""
    ranks = 1 if way == "one" else 2
    held = [socket.socket() for _ in range(ranks)]
    for sock in held:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{sock.getsockname()[1]}" for sock in held]
    command = [sys.executable, "-m", "benchmarks.allreduce_rank", way, size]
    children = [
        subprocess.Popen(
            [*command, str(rank), ",".join(addresses)],
            cwd=ROOT, env=rank_environment(), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    try:
        if way == "ring":
            introduce(children)
        lines = [child.communicate(timeout=300)[0].strip().splitlines() for child in children]
        return float(lines[0][-1])
    finally:
        for child in children:
            child.kill()
        for sock in held:
            sock.close()


def introduce(children: list[Any]) -> None:
    """Tell each process all addresses and the key."""
    addresses = [child.stdout.readline().strip() for child in children]
    key = secrets.token_hex(32)
    for child in children:
        child.stdin.write(" ".join([key, *addresses]) + "\n")
        child.stdin.flush()


class Clock:
    """Milliseconds per step of each epoch."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.epochs: list[float] = []
        self.start = 0.0

    def begin(self) -> None:
        """Begin an epoch."""
        self.start = time.perf_counter()

    def end(self) -> None:
        """End an epoch."""
        self.epochs.append((time.perf_counter() - self.start) * 1000 / self.steps)

    def callback(self) -> Any:
        """Return a callback of Keras that measures each epoch."""
        import keras

        return keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda *_: self.begin(), on_epoch_end=lambda *_: self.end()
        )

    def median(self) -> float:
        """Return the median of all epochs but the first, which traces."""
        return round(statistics.median(self.epochs[1:]), 3)


if __name__ == "__main__":
    main()
