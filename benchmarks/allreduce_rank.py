"""One worker of the benchmark `allreduce`."""

import json
import os
import sys
from typing import Any

import numpy as np

import tensorflow as tf
from benchmarks.allreduce import EPOCHS, ROWS, SIZES, STEPS, Clock


def main() -> None:
    way, size, rank, addresses = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4].split(",")
    tf.config.threading.set_intra_op_parallelism_threads(1)
    keras = legacy() if way == "mirrored" else current()
    config = json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}})
    clock = Clock(STEPS[size])
    if way == "mirrored":
        os.environ["TF_CONFIG"] = config
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        with strategy.scope():
            model = build(keras, SIZES[size])
    else:
        transport = connect(way, rank, config)
        model = build(keras, SIZES[size])
        if transport is not None:
            from emberflow.strategies.data_parallel.distribute import distribute

            distribute(model, transport)
    rows = ROWS * (2 if way in ("one", "mirrored") else 1)  # a global batch, or ours
    data = dataset(rows, STEPS[size])
    callback = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda *_: clock.begin(), on_epoch_end=lambda *_: clock.end()
    )
    model.fit(data, epochs=EPOCHS, steps_per_epoch=STEPS[size], verbose=0, callbacks=[callback])
    print(clock.median(), flush=True)
    if way == "mirrored":
        os._exit(0)  # its server does not end by itself


def current() -> Any:
    import keras

    return keras


def legacy() -> Any:
    import tf_keras

    return tf_keras


def connect(way: str, rank: int, config: str) -> Any:
    if way == "collectives":
        from emberflow.strategies.transport.collectives import start_collectives

        return start_collectives(config)
    if way == "ring":
        from emberflow.strategies.transport.host_key import host_key
        from emberflow.strategies.transport.ring import Ring

        listener = Ring.listen("127.0.0.1")
        print(listener.address, flush=True)
        key, *addresses = sys.stdin.readline().split()
        hosts = [host_key()] * len(addresses)
        return Ring.connect(listener, rank=rank, addresses=addresses, key=bytes.fromhex(key), hosts=hosts)
    return None


def build(keras: Any, width: int) -> Any:
    hidden = [keras.layers.Dense(width, activation="relu") for _ in range(4)]
    model = keras.Sequential([keras.layers.InputLayer((64,)), *hidden, keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01), loss, metrics=["accuracy"])
    return model


def dataset(rows: int, steps: int) -> Any:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows * steps, 64)).astype(np.float32)
    y = rng.integers(0, 10, size=rows * steps)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(rows, drop_remainder=True).repeat()
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return data.with_options(options)


if __name__ == "__main__":
    main()
