"""One worker of the benchmark `scale`."""

import json
import sys
from typing import Any

import keras
import numpy as np

import tensorflow as tf
from benchmarks.allreduce import Clock
from benchmarks.scale import MODELS, TURNS
from emberflow.strategies.data_parallel.distribute import distribute
from emberflow.strategies.transport.host_key import host_key
from emberflow.strategies.transport.ring import Ring


def main() -> None:
    size, rank = sys.argv[1], int(sys.argv[2])
    tf.config.threading.set_intra_op_parallelism_threads(1)
    listeners = [Ring.listen("127.0.0.1") for _ in range(2)]
    print(",".join(listener.address for listener in listeners), flush=True)
    key, *pairs = sys.stdin.readline().split()
    addresses = list(zip(*(pair.split(",") for pair in pairs), strict=True))
    ring, sealed = (
        Ring.connect(
            listener, rank=rank, addresses=each, key=bytes.fromhex(key), hosts=hosts, encrypt=not hosts
        )
        for listener, each, hosts in zip(listeners, addresses, ([host_key()] * len(pairs), ()), strict=True)
    )
    models = {way: build(size) for way in ("apart", "number", "exchange", "encrypted")}
    sum_a_number(models["number"], ring)
    distribute(models["exchange"], ring)
    distribute(models["encrypted"], sealed)
    print(json.dumps(in_turn(models, dataset(size, rank), MODELS[size][2], ring)), flush=True)


def build(size: str) -> Any:
    layers = [keras.layers.Dense(width, activation="relu") for width in MODELS[size][0]]
    model = keras.Sequential([keras.layers.InputLayer((784,)), *layers, keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01), loss, metrics=["accuracy"], jit_compile=False)
    return model


def sum_a_number(model: Any, ring: Ring) -> None:
    """Let each training step wait for all other workers' steps."""
    inner = model.train_step

    def train_step(data: Any) -> Any:
        logs = inner(data)
        with tf.control_dependencies(ring.sum([tf.constant(1.0)])):
            return {name: tf.identity(value) for name, value in logs.items()}

    model.train_step = train_step


def dataset(size: str, rank: int) -> Any:
    _, rows, steps = MODELS[size]
    rng = np.random.default_rng(rank)
    x, y = rng.normal(size=(rows, 784)).astype(np.float32), rng.integers(0, 10, rows)
    return tf.data.Dataset.from_tensors((x, y)).repeat(steps)


def in_turn(models: dict[str, Any], data: Any, steps: int, ring: Ring) -> dict[str, list[float]]:
    """Return the slowest worker's milliseconds per step in each turn but the first, which traces."""
    taken: dict[str, list[float]] = {way: [] for way in models}
    for turn in range(TURNS + 1):
        for way in models if turn % 2 else reversed(models):
            ring.all_gather(np.zeros(1))  # all begin together
            clock = Clock(steps)  # without the start of `fit`, which is paid once
            models[way].fit(data, verbose=0, callbacks=[clock.callback()])
            taken[way].append(float(np.max(ring.all_gather(np.array(clock.epochs)))))
    return {way: values[1:] for way, values in taken.items()}


if __name__ == "__main__":
    main()
