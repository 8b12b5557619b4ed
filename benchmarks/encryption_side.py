"""One process of the benchmark `encryption`: a worker of two rings, or two nodes that exchange rows."""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tensorflow as tf
from benchmarks.allreduce import ROWS, SIZES
from benchmarks.allreduce_rank import build, dataset
from benchmarks.encryption import SIDES, TURNS, new_key
from emberflow._protocol import sockets
from emberflow.strategies.data_parallel.distribute import distribute
from emberflow.strategies.parameter_server.row_exchange import PeerRows, RowServer
from emberflow.strategies.transport.ring import Ring

STEPS = 15  # of one epoch
EXCHANGES = 15  # of one block
BATCH, WIDTH = 256, 784  # rows and floats of a batch that one node gives to another
BATCHES = 200

Figures = dict[str, list[float]]


def main() -> None:
    what, rank = sys.argv[1], int(sys.argv[2])
    tf.config.threading.set_intra_op_parallelism_threads(1)
    print(json.dumps(ring(rank) if what == "ring" else feed()), flush=True)


def ring(rank: int) -> dict[str, Figures]:
    """Train over two rings, one of them encrypted, and exchange over them without a model."""
    rings = {side: join(rank, encrypt=side == "encrypted") for side in SIDES}
    models = {side: build(tf.keras, SIZES["4.2M"]) for side in SIDES}
    for side in SIDES:
        distribute(models[side], rings[side])
    data = dataset(ROWS, STEPS)

    def epoch_of(side: str) -> Callable[[], object]:
        return lambda: models[side].fit(data, epochs=1, steps_per_epoch=STEPS, verbose=0)

    steps, steps_cpu = in_turn({side: epoch_of(side) for side in SIDES}, STEPS)
    gradients = [np.ones(weight.shape, np.float32) for weight in models["plain"].get_weights()]

    def exchanges_of(side: str) -> Callable[[], object]:
        return lambda: [rings[side].sum_arrays(gradients) for _ in range(EXCHANGES)]

    exchanges, exchanges_cpu = in_turn({side: exchanges_of(side) for side in SIDES}, EXCHANGES)
    for side in SIDES:
        rings[side].close()
    return {
        "step_ms": steps,
        "step_cpu_ms": steps_cpu,
        "exchange_ms": exchanges,
        "exchange_cpu_ms": exchanges_cpu,
    }


def join(rank: int, *, encrypt: bool) -> Ring:
    listener = Ring.listen("127.0.0.1")
    print(listener.address, flush=True)
    key, *addresses = sys.stdin.readline().split()
    return Ring.connect(listener, rank=rank, addresses=addresses, key=bytes.fromhex(key), encrypt=encrypt)


def in_turn(sides: dict[str, Callable[[], object]], count: int) -> tuple[Figures, Figures]:
    """Return milliseconds by the clock and of CPU for one of `count`, each side in turn, without the first turn."""
    clock: Figures = {side: [] for side in sides}
    cpu: Figures = {side: [] for side in sides}
    for turn in range(TURNS + 1):
        for side in sides if turn % 2 else reversed(sides):
            started, used = time.perf_counter(), time.process_time()
            sides[side]()
            clock[side].append((time.perf_counter() - started) * 1000 / count)
            cpu[side].append((time.process_time() - used) * 1000 / count)
    return {side: clock[side][1:] for side in sides}, {side: cpu[side][1:] for side in sides}


def feed() -> Figures:
    """Return rows per CPU-second, of both sides together, that one node gives to another."""
    rows = [tf.random.normal((BATCH, WIDTH)), tf.zeros(BATCH, tf.int64)]
    dtypes = [each.dtype for each in rows]
    nodes = {side: pair(rows, encrypt=side == "encrypted") for side in SIDES}

    def batches_of(side: str) -> Callable[[], object]:
        return lambda: [nodes[side].take("train", 0, dtypes) for _ in range(BATCHES)]

    _, cpu = in_turn({side: batches_of(side) for side in SIDES}, BATCHES)
    return {side: [BATCH * 1000 / each for each in cpu[side]] for side in SIDES}


def pair(rows: list[Any], *, encrypt: bool) -> PeerRows:
    """Return a node's way to the rows of another node, both in this process."""
    key, listener = new_key(), sockets.listen("127.0.0.1")
    address = sockets.address_of("127.0.0.1", listener.getsockname()[1])
    RowServer(listener, key=key, rank=1, takes={"train": lambda _: (BATCH, rows)}, encrypt=encrypt)
    return PeerRows(["127.0.0.1:1", address], key=key, rank=0, encrypt=encrypt)


if __name__ == "__main__":
    main()
