"""Keras 3 on parameter servers through ctx.coordinate: exact rows, metrics, callbacks; lost workers, lost servers."""

import functools
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import emberflow as ef
from tests.spark.watching import (
    GOAL,
    START,
    await_begun,
    await_file,
    begin,
    error_of,
    kill_node,
    start_run,
)
from tests.tensorflow.digits_rows import accuracy_of, digit_model, digit_rows, digits, noted, times_seen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.timeout(400)]

EPOCHS = 8


def recorder(calls: list[tuple[str, int]]) -> Any:
    import keras

    def note(kind: str) -> Any:
        return lambda number, logs=None: calls.append((kind, number, *sorted(logs or ())))  # type: ignore[arg-type]

    return keras.callbacks.LambdaCallback(
        on_train_begin=lambda _: calls.append(("train begin", 0)),
        on_train_end=lambda _: calls.append(("train end", 0)),
        on_epoch_begin=note("epoch begin"),
        on_epoch_end=note("epoch end"),
        on_train_batch_begin=note("batch begin"),
        on_train_batch_end=note("batch end"),
    )


def train(notes: Path, ctx: Any) -> dict[str, Any]:
    validation = functools.partial(
        ctx.dataset, "validation", features="image", label="label", batch_size=64, shapes={"image": (64,)}
    )
    trainer = ctx.coordinate(
        lambda: noted(ctx, notes / f"seen-{ctx.rank}", batch_size=16), validation=validation
    )
    assert ctx.is_chief  # the others serve
    with trainer.scope():
        model = digit_model()
    calls: list[tuple[str, int]] = []
    history = trainer.fit(model, epochs=EPOCHS, callbacks=[recorder(calls)])
    return {
        "calls": calls,
        "history": history.history,
        "weights": model.get_weights(),
        "devices": sorted({variable.value.device for variable in model.variables}),
        "iterations": int(model.optimizer.iterations.numpy()),
        "taken": {int(rank): place["step"] for rank, place in trainer.places().items()},
    }


def test_all_nodes_learn_digits_on_two_servers(spark_gpus: "SparkSession", tmp_path: Path) -> None:
    rows = digit_rows(spark_gpus)
    result = ef.run(
        functools.partial(train, tmp_path),
        workers=3,
        ps=2,
        strategy="parameter_server",
        data={"train": rows, "validation": rows},
        spark=spark_gpus,
        verbose=False,
    )
    value = result.value
    accuracy = accuracy_of(value["weights"])
    print(f"parameter servers: {accuracy:.4f} in {result.seconds:.1f} s; {value['history']['loss']}")
    assert accuracy >= 0.97

    every = range(len(digits()[1]))
    assert times_seen(tmp_path.glob("seen-*")) == dict.fromkeys(every, EPOCHS)
    assert [device.split("/")[1:4:2] for device in value["devices"]] == [
        ["job:ps", f"task:{n}"] for n in (0, 1)
    ]
    assert set(value["taken"]) == {0, 1, 2}  # all three nodes have trained, the chief too

    steps = sum(value["taken"].values())
    assert value["iterations"] == steps * EPOCHS  # none was lost between two workers
    logs = ("accuracy", "loss")
    batches = [
        call for batch in range(steps) for call in (("batch begin", batch), ("batch end", batch, *logs))
    ]
    expected: list[Any] = [("train begin", 0)]
    for number in range(EPOCHS):
        ended = ("epoch end", number, *logs, "val_accuracy", "val_loss")
        expected += [("epoch begin", number), *batches, ended]
    assert value["calls"] == [*expected, ("train end", 0)]
    history = value["history"]
    assert set(history) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert [len(values) for values in history.values()] == [EPOCHS] * 4
    assert history["val_accuracy"][-1] >= 0.99  # the rows it has learned
    # Sums over all workers' rows: an accuracy is a whole number of them.
    counts = [share * len(digits()[1]) for share in history["accuracy"]]
    assert counts == pytest.approx([round(count) for count in counts], abs=0.01)


def survive(notes: Path, ctx: Any) -> Any:
    if ctx.role == "worker":
        begin(notes, ctx.rank)
    trainer = ctx.coordinate(lambda: noted(ctx, notes / f"seen-{ctx.rank}", batch_size=16))
    with trainer.scope():
        model = digit_model()
    trainer.fit(model, epochs=2)
    (notes / "trained").touch()
    await_file(notes / "go-on")
    history = trainer.fit(model, initial_epoch=2, epochs=6)
    return history.history["loss"]


@pytest.mark.fault
def test_training_goes_on_without_a_worker_that_was_killed(
    spark_gpus: "SparkSession", tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = start_run(
        spark_gpus,
        functools.partial(survive, tmp_path),
        workers=3,
        ps=1,
        strategy="parameter_server",
        data=digit_rows(spark_gpus),
    )
    workers = [await_begun(tmp_path, rank) for rank in (1, 2)]
    await_file(tmp_path / "trained", timeout=2 * START)
    workers[0].node.send_signal(signal.SIGKILL)
    (tmp_path / "go-on").touch()
    result = run.result(timeout=2 * START)
    assert len(result.value) == 4
    assert result.attempts == 1
    assert [report.ending for report in result.reports] == ["returned", "lost", "returned", "returned"]
    assert "The run goes on without it" in caplog.text
    seen = times_seen([tmp_path / "seen-0", tmp_path / "seen-2"])
    assert set(seen.values()) == {6}


def train_long(notes: Path, ctx: Any) -> None:
    if ctx.role == "worker":
        begin(notes, ctx.rank)
    trainer = ctx.coordinate(lambda: noted(ctx, notes / f"seen-{ctx.rank}", batch_size=16))
    with trainer.scope():
        model = digit_model()
    trainer.fit(model, epochs=1)
    (notes / "trained").touch()
    trainer.fit(model, epochs=10_000)


@pytest.mark.fault
@pytest.mark.full
def test_a_stopped_worker_is_done_without_and_a_stopped_server_ends_the_run(
    spark_gpus: "SparkSession", tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limit = 8.0
    run = start_run(
        spark_gpus,
        functools.partial(train_long, tmp_path),
        workers=3,
        ps=1,
        strategy="parameter_server",
        exchange_timeout=limit,
        data=digit_rows(spark_gpus),
    )
    worker = await_begun(tmp_path, 1).node
    name = worker.environ()["EMBERFLOW_RUN"]
    await_file(tmp_path / "trained", timeout=2 * START)
    worker.send_signal(signal.SIGSTOP)
    deadline = time.monotonic() + limit + GOAL
    while "The run goes on without it" not in caplog.text:
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)
    size = (tmp_path / "seen-2").stat().st_size
    while (
        tmp_path / "seen-2"
    ).stat().st_size == size:  # the others train, also on rows that it had not given
        assert time.monotonic() < deadline + START
        threading.Event().wait(0.05)
    stopped = time.time()
    kill_node("ps 3", name, signal.SIGSTOP)
    error = error_of(run, stopped + limit, f"a stopped parameter server, after exchange_timeout={limit:g}")
    assert isinstance(error, ef.NodeLostError)
    assert (error.rank, error.role) == (3, "ps")
    assert "has not answered for 8 s (exchange_timeout)" in error.problem


def embed(ctx: Any) -> Any:
    import keras
    import numpy as np

    import tensorflow as tf

    def rows() -> Any:
        return ctx.dataset("train", features="word", label="label", batch_size=8)

    trainer = ctx.coordinate(rows)
    with trainer.scope():
        layers = [keras.layers.Input((), dtype="int64"), ef.ShardedEmbedding(101, 4, shards=2)]
        model = keras.Sequential([*layers, keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.05), "mse")
    losses = trainer.fit(model, epochs=30).history["loss"]
    table = model.layers[0]
    whole = np.zeros((101, 4), np.float32)
    for shard, part in enumerate(table.tables):
        whole[shard::2] = part.numpy()
    looked_up = table(tf.range(101)).numpy()
    again = keras.Sequential.from_config(model.get_config())
    again.set_weights(model.get_weights())
    words = np.arange(101)
    return {
        "losses": losses,
        "devices": [part.value.device for part in table.tables],
        "same": bool(np.allclose(whole, looked_up)),
        "again": bool(np.allclose(again(words), model(words), atol=1e-5)),
    }


@pytest.mark.full
def test_an_embedding_is_spread_over_servers(spark_gpus: "SparkSession") -> None:
    rows = spark_gpus.range(0, 101, 1, 2).selectExpr("id as word", "cast(id % 2 as float) as label")
    value = ef.run(
        embed, workers=2, ps=2, strategy="parameter_server", data=rows, spark=spark_gpus, verbose=False
    ).value
    assert sorted("/".join(device.split("/")[1:4:2]) for device in value["devices"]) == [
        "job:ps/task:0",
        "job:ps/task:1",
    ]
    assert value["losses"][-1] < 0.05 < value["losses"][0]
    assert value["same"]
    assert value["again"]


def fit_tf_keras(ctx: Any) -> Any:
    import numpy as np
    import tf_keras

    import tensorflow as tf

    strategy = ctx.strategy()
    with strategy.scope():
        model = tf_keras.Sequential([tf_keras.layers.Dense(1, input_shape=(1,))])
        model.compile(tf_keras.optimizers.SGD(0.1), "mse")

    def rows(_: Any) -> Any:
        x = np.linspace(-1, 1, 64, dtype=np.float32)[:, None]
        return tf.data.Dataset.from_tensor_slices((x, 3 * x + 1)).repeat().batch(16)

    creator = tf_keras.utils.experimental.DatasetCreator(rows)
    losses = model.fit(creator, epochs=5, steps_per_epoch=40, verbose=0).history["loss"]
    return losses, [float(value.item()) for value in model.get_weights()]


@pytest.mark.full
def test_tf_keras_fits_under_its_own_strategy(spark_gpus: "SparkSession") -> None:
    losses, weights = ef.run(
        fit_tf_keras, workers=3, ps=1, strategy="parameter_server", spark=spark_gpus, verbose=False
    ).value
    assert losses[-1] < 0.01 < losses[0]
    assert weights == pytest.approx([3.0, 1.0], abs=0.05)
