"""Periodic averaging on real nodes: two workers, a parameter server, digits."""

import functools
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import emberflow as ef
from tests.spark.watching import START, await_begun, await_file, begin, error_of, kill_node, start_run
from tests.tensorflow.digits_rows import accuracy_of, digit_model, digit_rows, digits, noted, times_seen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.timeout(400)]

EPOCHS = 10


def train(notes: Path, ctx: Any) -> dict[str, Any]:
    model = digit_model()
    sync = ctx.periodic(model, interval=5, combiner="mean")
    rows = noted(ctx, notes / f"seen-{ctx.rank}", batch_size=16)
    model.fit(rows, epochs=EPOCHS, verbose=0, callbacks=[sync])
    missing = sync.finish()
    address = ctx._services.averaging._addresses[0]
    return {
        "missing": missing,
        "refused": is_refused(address) if ctx.is_chief else None,
        "weights": model.get_weights() if ctx.is_chief else None,
    }


def is_refused(address: str) -> bool:
    """Tell whether the server closes the connection of a client without the key."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as stranger:
        stranger.settimeout(10)
        assert stranger.recv(64).startswith(b"emberflow/")
        stranger.sendall(bytes(64))
        return stranger.recv(64) == bytes(32) and stranger.recv(64) == b""  # refused, then disconnected


@pytest.mark.full
def test_two_workers_learn_digits_together(spark_gpus: "SparkSession", tmp_path: Path) -> None:
    result = ef.run(
        functools.partial(train, tmp_path),
        workers=2,
        ps=1,
        strategy="periodic",
        data=digit_rows(spark_gpus),
        spark=spark_gpus,
        verbose=False,
    )
    chief, _, ps = result.reports
    accuracy = accuracy_of(result.value["weights"])
    print(f"periodic: {accuracy:.4f} in {result.seconds:.1f} s; server {dict(list(ps.value.items())[:-2])}")
    assert accuracy >= 0.97

    every = range(len(digits()[1]))
    assert times_seen(tmp_path.glob("seen-*")) == dict.fromkeys(every, EPOCHS)
    # The server saw both workers push between pull and push of the other.
    assert set(ps.value["pushes"]) == {0, 1}
    assert ps.value["overlapping"] > 10
    overlapping = {rank for rank, pulled, version in ps.value["last"] if version - 1 > pulled}
    assert overlapping == {0, 1}
    assert max(metric.values.get("staleness", 0) for metric in result.metrics) >= 1
    assert chief.value["refused"]
    assert ps.value["refused"] == 1
    assert chief.value["missing"] == []


def wander(ctx: Any) -> Any:
    """Add one to each weight in each step, so that the result tells how many steps counted."""
    import tensorflow as tf

    if ctx.rows("train") == 0 and not ctx.is_chief:
        return "nothing to do"
    rows = ctx.dataset("train", features="x", batch_size=2)
    graph = tf.Graph()
    with graph.as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None], "x")
        weight = tf.compat.v1.get_variable("w", initializer=np.zeros(3, np.float32), use_resource=False)
        step = tf.compat.v1.assign_add(weight, tf.ones(3) * tf.reduce_sum(x))
        session.run(tf.compat.v1.global_variables_initializer())
        sync = ctx.periodic_session(session, [weight], interval=2, combiner="delta")
        sizes = len(graph.get_operations())
        for _ in range(3):
            sync.run(step, ["x:0"], rows)
        sync.finish()
        assert len(graph.get_operations()) == sizes
        return session.run(weight).tolist()


def test_a_graph_of_tensorflow_1_and_a_worker_without_rows(spark_gpus: "SparkSession") -> None:
    rows = spark_gpus.range(0, 1, 1, 1).selectExpr("cast(5 as float) as x")
    result = ef.run(wander, workers=2, ps=2, strategy="periodic", data=rows, spark=spark_gpus, verbose=False)
    values = [report.value for report in result.reports[:2]]
    assert result.value == [15.0] * 3  # one row of 5, three epochs
    assert values[1] in ("nothing to do", [15.0] * 3)
    pushed = [sum(report.value["pushes"].values()) for report in result.reports[2:]]
    assert pushed[0] == pushed[1] == 3
    assert all(len(report.value["pushes"]) == 1 for report in result.reports[2:])


def survive(notes: Path) -> Any:
    def fn(ctx: Any) -> Any:
        model = digit_model()
        sync = ctx.periodic(model, interval=2)
        rows = ctx.dataset("train", features="image", label="label", batch_size=16, shapes={"image": (64,)})
        model.fit(rows, epochs=1, verbose=0, callbacks=[sync])
        begin(notes, ctx.rank)
        if ctx.rank == 1:
            signal.pause()
        await_file(notes / "go-on")
        model.fit(rows, epochs=2, verbose=0, callbacks=[sync])
        return sync.finish()

    return fn


@pytest.mark.full
def test_training_goes_on_without_a_worker_that_was_killed(
    spark_gpus: "SparkSession", tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = start_run(
        spark_gpus, survive(tmp_path), workers=3, ps=1, strategy="periodic", data=digit_rows(spark_gpus)
    )
    for rank in (0, 2):
        await_begun(tmp_path, rank)
    await_begun(tmp_path, 1).node.send_signal(signal.SIGKILL)
    (tmp_path / "go-on").touch()
    result = run.result(timeout=START)
    assert (result.value, result.attempts) == ([1], 1)
    assert [report.ending for report in result.reports] == ["returned", "lost", "returned", "returned"]
    assert "The run goes on without it" in caplog.text


@pytest.mark.fault
def test_a_combiner_that_raises_is_the_cause(spark_gpus: "SparkSession", tmp_path: Path) -> None:
    def combine(server: Any, pushed: Any, pulled: Any) -> Any:
        raise ValueError("shapes do not agree")

    def fn(ctx: Any) -> Any:
        model = digit_model()
        sync = ctx.periodic(model, interval=1, combiner=combine)
        rows = ctx.dataset("train", features="image", label="label", batch_size=16, shapes={"image": (64,)})
        begin(tmp_path, ctx.rank)
        model.fit(rows, epochs=100, verbose=0, callbacks=[sync])

    rows = digit_rows(spark_gpus)
    run = start_run(spark_gpus, fn, workers=1, ps=1, strategy="periodic", data=rows)
    error = error_of(
        run, await_begun(tmp_path, 0).at + 10, "a combiner that raises, 10 s after its worker began"
    )
    assert isinstance(error, ef.NodeFailedError)
    assert (error.role, error.exception_type) == ("ps", "ValueError")
    assert "in combine" in error.remote_traceback
    assert error.remote_traceback.rstrip().endswith("ValueError: shapes do not agree")
    assert "src/emberflow" not in error.remote_traceback


@pytest.mark.full
def test_a_killed_server_costs_a_restart(spark_gpus: "SparkSession", tmp_path: Path) -> None:
    def fn(ctx: Any) -> Any:
        model = digit_model()
        sync = ctx.periodic(model, interval=2)
        if ctx.attempt == 0:
            begin(tmp_path, ctx.rank)
        rows = ctx.dataset("train", features="image", label="label", batch_size=16, shapes={"image": (64,)})
        model.fit(rows, epochs=1 if ctx.attempt else 10_000, verbose=0, callbacks=[sync])
        sync.finish()
        return ctx.attempt

    run = start_run(
        spark_gpus,
        fn,
        workers=2,
        ps=1,
        strategy="periodic",
        max_restarts=1,
        data=digit_rows(spark_gpus),
    )
    begun = [await_begun(tmp_path, rank) for rank in range(2)]
    kill_node("ps 2", begun[0].node.environ()["EMBERFLOW_RUN"])
    result = run.result(timeout=START)
    assert (result.value, result.attempts) == (1, 2)
