"""One process of the benchmark `gpu`: it looks for a GPU, is one worker, or fits from spool and memory."""

import json
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa

import tensorflow as tf
from emberflow._feed.arrays import KEY
from emberflow._feed.dataset import DatasetOptions, Shard
from emberflow._feed.feed import Feed
from emberflow._feed.shards import merge_shards
from emberflow._feed.spool import Spool, SpoolWriter
from emberflow.strategies.data_parallel.distribute import distribute
from emberflow.strategies.transport.host_key import host_key
from emberflow.strategies.transport.ring import Ring

TINY = "cpu" in sys.argv
WIDTH = 64 if TINY else 2048  # of two layers behind 784 inputs: 5.8 M parameters
STEPS, TURNS, BATCH = (3, 2, 16) if TINY else (40, 7, 128)
ROWS, EPOCHS, FITS = (1280, 2, 2) if TINY else (480 * BATCH, 4, 3)  # MNIST's, in whole batches
PLACED = "on_device" in {field.name for field in fields(DatasetOptions)}  # an older version has it not


def main() -> None:
    {"look": look, "ring": ring_rank, "fit": fit_sides}[sys.argv[1]]()


def look() -> None:
    gpus = tf.config.list_physical_devices("GPU")
    details = tf.config.experimental.get_device_details(gpus[0]) if gpus else {}
    print(json.dumps(details.get("device_name", "GPU") if gpus else None), flush=True)


def build_mlp(*, jit: bool | str = "auto") -> Any:
    hidden = [keras.layers.Dense(WIDTH, activation="relu") for _ in range(2)]
    return compiled([keras.layers.InputLayer((784,)), *hidden, keras.layers.Dense(10)], jit=jit)


def build_cnn() -> Any:
    layers = keras.layers
    return compiled(
        [
            layers.InputLayer((28, 28, 1), dtype="uint8"), layers.Rescaling(1 / 255),
            layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"), layers.MaxPooling2D(),
            layers.Flatten(), layers.Dense(128, activation="relu"), layers.Dense(10),
        ]
    )  # fmt: skip


def compiled(layers: list[Any], *, jit: bool | str = "auto") -> Any:
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01), loss, metrics=["accuracy"], jit_compile=jit)
    return model


# Two workers that share a GPU


def ring_rank() -> None:
    rank = int(sys.argv[2])
    listener = Ring.listen("127.0.0.1")
    print(listener.address, flush=True)
    key, *addresses = sys.stdin.readline().split()
    hosts = [host_key()] * len(addresses)
    ring = Ring.connect(listener, rank=rank, addresses=addresses, key=bytes.fromhex(key), hosts=hosts)
    rng = np.random.default_rng(rank)
    x, y = rng.normal(size=(BATCH, 784)).astype(np.float32), rng.integers(0, 10, BATCH)
    data = tf.data.Dataset.from_tensors((x, y)).repeat(STEPS)
    models = {"xla": build_mlp(jit=True), "apart": build_mlp(jit=False), "exchange": build_mlp(jit=False)}
    distribute(models["exchange"], ring)
    ways = {way: epoch_of(model, data) for way, model in models.items()}
    measured = in_turn({**ways, "alone": ways["apart"]}, ring)
    print(json.dumps({"ms": measured}), flush=True)  # in case that what follows fails
    exact = exactness(ring)
    ring.close()
    parameters = models["exchange"].count_params()
    print(json.dumps({"ms": measured, "parameters": parameters, "against_one_process": exact}), flush=True)


def epoch_of(model: Any, data: Any) -> Callable[[], object]:
    return lambda: model.fit(data, epochs=1, verbose=0, shuffle=False)


def in_turn(ways: dict[str, Callable[[], object]], ring: Ring) -> dict[str, list[float]]:
    """Return the slower worker's milliseconds per step in each turn but the first, which traces.

    In "alone" and "xla" the first worker has the GPU for itself.
    """
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(TURNS + 1):
        for way in ways if turn % 2 else reversed(ways):
            ring.all_gather(np.zeros(1))  # all begin together
            started = time.perf_counter()
            if ring.rank == 0 or way not in ("alone", "xla"):
                ways[way]()
            mine = np.array([(time.perf_counter() - started) * 1000 / STEPS])
            taken[way].append(float(np.max(ring.all_gather(mine))))
    return {way: values[1:] for way, values in taken.items()}


def exactness(ring: Ring) -> dict[str, Any]:
    """Train two workers with uneven batches, and one process on all rows; return how far their weights differ."""
    tf.config.experimental.enable_tensor_float_32_execution(enabled=False)
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(10, 100, 784)).astype(np.float32), rng.integers(0, 10, (10, 100))
    mine = slice(0, 37) if ring.rank == 0 else slice(37, 100)
    keras.utils.set_random_seed(3)
    one = build_mlp(jit=False)
    both = build_mlp(jit=False)
    both.set_weights(one.get_weights())
    distribute(both, ring)
    both.fit(tf.data.Dataset.from_tensor_slices((x[:, mine], y[:, mine])), epochs=2, verbose=0, shuffle=False)
    one.fit(tf.data.Dataset.from_tensor_slices((x, y)), epochs=2, verbose=0, shuffle=False)
    pairs = list(zip(both.get_weights(), one.get_weights(), strict=True))
    bits = zlib.crc32(b"".join(np.ascontiguousarray(weight).tobytes() for weight, _ in pairs))
    everyone = np.concatenate(ring.all_gather(np.array([bits], np.int64)))
    return {
        "largest_difference": float(max(np.abs(weight - other).max() for weight, other in pairs)),
        "within_1e-5": bool(all(np.allclose(weight, other, rtol=1e-5, atol=1e-5) for weight, other in pairs)),
        "same_bits_on_both": bool((everyone == everyone[0]).all()),
        "device": both.trainable_variables[0].value.device,
    }


# From the spool and from memory


def fit_sides() -> None:
    figures = {}
    for kind, build in (("784 floats, MLP", build_mlp), ("MNIST bytes, CNN", build_cnn)):
        figures[kind] = fit_in_turn(build, "floats" in kind)
        print(f"{kind}: {figures[kind]}", file=sys.stderr, flush=True)
    print(json.dumps(figures), flush=True)


def fit_in_turn(build: Callable[[], Any], is_float: bool) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 10, ROWS)
    if is_float:
        x = rng.random((ROWS, 784), dtype=np.float32)
        options: dict[str, Any] = {"shapes": {"x": (784,)}}
    else:
        x = rng.integers(0, 256, (ROWS, 28, 28, 1)).astype(np.uint8)
        options = {"shapes": {"x": (28, 28, 1)}, "dtypes": {"x": "uint8"}}
    feed = Feed({name: spooled(x, y, is_float, name) for name in ("spool", "placed")})
    options |= {"batch_size": BATCH, "features": "x", "label": "y"}
    sides: dict[str, dict[str, Any]] = {
        "memory": {"x": x, "y": y, "batch_size": BATCH},
        "spool": {"x": feed.dataset("spool", DatasetOptions(**options)), "shuffle": False},
    }
    if PLACED:
        placed = DatasetOptions(**options, on_device=True)
        sides["placed"] = {"x": feed.dataset("placed", placed), "shuffle": False}
    models = {side: build() for side in sides}
    taken: dict[str, list[float]] = {side: [] for side in sides}
    first: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(FITS + 1):
        for side in sides if turn % 2 else reversed(sides):
            clock = EpochClock()
            models[side].fit(**sides[side], epochs=EPOCHS if turn else 1, verbose=0, callbacks=[clock])
            if turn:  # the first one traces and compiles
                taken[side] += [ROWS / seconds for seconds in clock.seconds[1:]]
                first[side] += [seconds * 1000 for seconds in clock.first[1:]]
    return {"rows_per_second": taken, "start_ms": first, "xla": bool(models["memory"].jit_compile)}


class EpochClock(keras.callbacks.Callback):  # type: ignore[misc]
    """Seconds of each epoch, and until the end of its first step."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self.first: list[float] = []
        self._started = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Begin an epoch."""
        self._started = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """End a step."""
        if batch == 0:
            self.first.append(time.perf_counter() - self._started)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """End an epoch."""
        self.seconds.append(time.perf_counter() - self._started)


def spooled(x: Any, y: Any, is_float: bool, name: str) -> Shard:
    """Return the rows as a shard of one rank, in chunks such as Spark makes."""
    if is_float:
        offsets = np.arange(0, x.size + 1, 784, dtype=np.int32)
        column = pa.ListArray.from_arrays(offsets, pa.array(x.reshape(-1)))
    else:
        column = pa.array([row.tobytes() for row in x], pa.binary())
    table = pa.table({KEY: np.arange(len(x)), "x": column, "y": y})
    with SpoolWriter(Path(tempfile.gettempdir())) as writer:
        for batch in table.to_batches(max_chunksize=1000 if is_float else 4000):
            writer.write(batch)
        file = writer.finish()
    spool = Spool(file)
    file.close()
    return Shard(name=name, rank=0, spool=spool, facts=merge_shards([file.facts]))


if __name__ == "__main__":
    main()
