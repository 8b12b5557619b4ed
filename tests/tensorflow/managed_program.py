"""The program of the tests of tasks without Spark: the same functions run under `ef.run`."""

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np


def build(seed: int = 7) -> keras.Model:
    layers = [
        keras.Input((4,)),
        keras.layers.Dense(8, activation="tanh", kernel_initializer=keras.initializers.GlorotUniform(seed)),
        keras.layers.Dense(1, kernel_initializer=keras.initializers.GlorotUniform(seed + 1)),
    ]
    return keras.Sequential(layers)


def train(ctx: Any) -> float:
    """Train on all workers at once, all rows in each step; every worker keeps its weights."""
    model = build()
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    model = ctx.distribute(model)
    rows = ctx.dataset("train", features="x", label="y", batch_size=int(sys.argv[1]))
    history = model.fit(rows, epochs=5, verbose=0)
    ctx.report(loss=history.history["loss"][-1])
    ctx.save_checkpoint(lambda folder: model.save(folder / "model.keras"), step=5)
    np.savez(Path(f"weights-{ctx.rank}.npz"), *model.get_weights())
    if ctx.is_chief:
        ctx.export(model, "exported")
    return float(history.history["loss"][-1])


def coordinate(ctx: Any) -> float:
    """Train asynchronously, with the variables on the parameter server."""
    trainer = ctx.coordinate(lambda: ctx.dataset("train", features="x", label="y", batch_size=16))
    with trainer.scope():
        model = build()
        model.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse")
    history = trainer.fit(model, epochs=4)
    losses = [float(loss) for loss in history.history["loss"]]
    print("losses", losses)
    assert losses[-1] < losses[0]
    np.savez(Path("weights.npz"), *model.get_weights())
    return losses[-1]


def average(ctx: Any) -> None:
    """Train each worker alone, and average with the others on the parameter server."""
    model = build()
    model.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse")
    averaging = ctx.periodic(model, interval=2)
    rows = ctx.dataset("train", features="x", label="y", batch_size=16)
    model.fit(rows, epochs=2, callbacks=[averaging], verbose=0)
    averaging.finish()
    np.savez(Path(f"averaged-{ctx.rank}.npz"), *model.get_weights())


def from_service(ctx: Any) -> None:
    """Take elements from tf.data service, which its data workers compute."""
    elements(ctx.data_service())


def elements(address: str) -> None:
    import tensorflow as tf

    service = tf.data.experimental.service
    policy = service.ShardingPolicy.DYNAMIC
    rows = tf.data.Dataset.range(100).map(lambda number: number * number)
    rows = rows.apply(service.distribute(processing_mode=policy, service=address))
    Path("found").write_text(repr(sorted(int(number) for number in rows)))
