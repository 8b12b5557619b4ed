"""`ef.run` on every kind of Spark: what comes back, and what a person sees meanwhile."""

import gc
import logging
import os
import re
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import emberflow as ef

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("nothing_left")


def train(ctx: Any) -> Any:
    print("hello from", ctx.rank)
    ctx.report(step=1, loss=0.5 + ctx.rank)
    return {"rank": ctx.rank, "role": ctx.role, "spec": ctx.cluster_spec, "work_dir": str(ctx.work_dir)}


@pytest.mark.smoke
def test_a_run_brings_back_value_reports_metrics_and_log(
    spark: "SparkSession", capfd: pytest.CaptureFixture[str]
) -> None:
    result = ef.run(train, workers=2, spark=spark)
    assert (result.value["rank"], result.value["role"]) == (0, "chief")
    assert [len(addresses) for addresses in result.value["spec"].values()] == [1, 1]
    assert [(r.rank, r.role, r.index) for r in result.reports] == [(0, "chief", 0), (1, "worker", 0)]
    assert all(r.host and r.seconds >= 0 for r in result.reports)
    assert [r.log_tail for r in result.reports] == ["hello from 0", "hello from 1"]
    assert result.reports[1].value["rank"] == 1
    losses = sorted((m.rank, m.step, m.values["loss"]) for m in result.metrics)
    assert losses == [(0, 1, 0.5), (1, 1, 1.5)]
    assert 0 < result.seconds < 60
    assert result.attempts == 1
    shown = capfd.readouterr().err
    assert "[worker 1] hello from 1\n" in shown
    assert "[chief 0] hello from 0\n" in shown
    assert not any(os.path.exists(r.value["work_dir"]) for r in result.reports)  # noqa: PTH110


def test_a_quiet_run_shows_nothing_of_its_nodes(
    spark_cluster: "SparkSession", capfd: pytest.CaptureFixture[str]
) -> None:
    result = ef.run(train, workers=2, spark=spark_cluster, verbose=False)
    out, err = capfd.readouterr()
    assert "hello" not in out + err
    assert result.reports[1].log_tail == "hello from 1"
    assert len(result.metrics) == 2


def test_auto_takes_every_slot_and_the_active_session_is_found(spark_cluster: "SparkSession") -> None:
    result = ef.run(lambda ctx: ctx.workers, workers="auto", verbose=False)
    assert (result.value, len(result.reports)) == (2, 2)


def test_one_worker_is_a_chief_alone(spark_cluster: "SparkSession") -> None:
    def alone(ctx: Any) -> Any:
        return ctx.role, ctx.workers, "TF_CONFIG" in os.environ

    assert ef.run(alone, workers=1, spark=spark_cluster, verbose=False).value == ("chief", 1, False)


@pytest.mark.parametrize(
    ("fn", "workers", "words"),
    [
        (train, 0, "Received: workers=0"),
        (train, "two", "Received: workers='two'"),
        (train, True, "Received: workers=True"),
        ("train", 2, "Received: 'train'"),
        (None, 2, "Received: None"),
    ],
)
def test_bad_arguments_start_nothing(
    spark_cluster: "SparkSession", fn: Any, workers: Any, words: str
) -> None:
    started = time.monotonic()
    with pytest.raises(ef.ConfigError, match=words):
        ef.run(fn, workers=workers, spark=spark_cluster)
    assert time.monotonic() - started < 1


def test_what_cannot_travel_is_named(spark_cluster: "SparkSession") -> None:
    lock, spark = threading.Lock(), spark_cluster
    with socket.socket() as sock:
        for name, fn in (
            ("lock", lambda _: lock.locked()),
            ("sock", lambda _: sock.fileno()),
            ("spark", lambda _: spark.range(1)),
        ):
            with pytest.raises(ef.ShippingError, match=f"`{name}`, a "):
                ef.run(fn, workers=2, spark=spark_cluster)


@pytest.mark.fault
def test_more_workers_than_slots_are_refused_in_seconds(spark_cluster: "SparkSession") -> None:
    started = time.monotonic()
    with pytest.raises(ef.ClusterError, match="needs 3 task slots") as caught:
        ef.run(train, workers=3, spark=spark_cluster)
    assert "Received: 2 slots" in str(caught.value)
    assert "workers=2" in caught.value.fix
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("rank", [0, 1])
def test_a_value_that_cannot_be_pickled(spark_cluster: "SparkSession", rank: int) -> None:
    def returns_lock(ctx: Any) -> Any:
        return threading.Lock() if ctx.rank == rank else "fine"

    if rank == 1:  # only the chief's value was asked for
        assert ef.run(returns_lock, workers=2, spark=spark_cluster, verbose=False).value == "fine"
        return
    with pytest.raises(ef.NodeFailedError, match=r"returned a _thread\.lock") as caught:
        ef.run(returns_lock, workers=2, spark=spark_cluster, verbose=False)
    assert caught.value.rank == 0


def test_100_mb_of_output_neither_hang_nor_fill_the_driver(
    spark_cluster: "SparkSession", capfd: pytest.CaptureFixture[str]
) -> None:
    def shout(ctx: Any) -> None:
        import sys

        if ctx.rank == 1:
            for number in range(1000):
                sys.stdout.write(f"{number:79}\n" * 1250)
        print("done")

    gc.collect()
    me = psutil.Process()
    before, peak = me.memory_info().rss, [0]
    over = threading.Event()

    def measure() -> None:
        while not over.wait(0.05):
            peak[0] = max(peak[0], me.memory_info().rss)

    watcher = threading.Thread(target=measure)
    watcher.start()
    try:
        result = ef.run(shout, workers=2, spark=spark_cluster)
    finally:
        over.set()
        watcher.join()
    grown = (peak[0] - before) >> 20
    shown = capfd.readouterr().err
    print(f"100 MB of output: {result.seconds:.1f} s, {len(shown) >> 20} MB shown, {grown} MB more memory")
    assert grown < 200
    assert "[worker 1] done" in shown
    assert "[chief 0] done" in shown
    assert result.reports[1].log_tail.endswith("done")


def test_a_value_of_50_mb_arrives_whole(spark_cluster: "SparkSession") -> None:
    def returns_much(ctx: Any) -> bytes:
        return bytes(range(250)) * 200_000 if ctx.rank == 0 else b"x" * 1_000_000

    result = ef.run(returns_much, workers=2, spark=spark_cluster, verbose=False)
    assert result.value == bytes(range(250)) * 200_000
    assert result.reports[1].value is None  # not the chief, and not small


@pytest.mark.full
def test_a_closure_of_300_mb_travels(spark_cluster: "SparkSession") -> None:
    data = os.urandom(1000) * 300_000

    def measure(_: Any) -> tuple[int, bytes]:
        return len(data), data[-10:]

    assert ef.run(measure, workers=2, spark=spark_cluster, verbose=False).value == (len(data), data[-10:])


def test_forks_and_grandchildren_that_leave_the_group(
    spark_cluster: "SparkSession", tmp_path: "Path"
) -> None:
    def fork(ctx: Any) -> str:
        if not os.fork():
            os.setsid()
            if os.fork():
                os._exit(0)
            (tmp_path / f"pid-{ctx.rank}.tmp").write_text(str(os.getpid()))
            (tmp_path / f"pid-{ctx.rank}.tmp").rename(tmp_path / f"pid-{ctx.rank}")
            threading.Event().wait()
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            while not (tmp_path / f"pid-{ctx.rank}").exists():
                pass
            return "parent"
        return "child"  # it comes back from your function too, and has no say

    result = ef.run(fork, workers=2, spark=spark_cluster, verbose=False)
    assert [report.value for report in result.reports] == ["parent", "parent"]
    orphans = [int((tmp_path / f"pid-{rank}").read_text()) for rank in range(2)]
    assert not any(psutil.pid_exists(pid) for pid in orphans)


def test_the_key_is_nowhere_to_be_seen(
    spark_cluster: "SparkSession", monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key = bytes(range(200, 232))
    forms = [re.escape(form) for form in (key, key.hex().encode(), repr(key)[2:-1].encode())]
    pattern = re.compile(b"|".join(forms))
    monkeypatch.setattr("secrets.token_bytes", lambda size: key if size == 32 else os.urandom(size))
    caplog.set_level(logging.DEBUG, logger="emberflow")

    def look_around(ctx: Any) -> tuple[list[bytes], int]:
        seen = []
        for process in psutil.process_iter():
            try:
                seen += [" ".join(process.cmdline()).encode(), str(process.environ()).encode()]
            except psutil.Error:
                continue
        return seen, ctx.work_dir.parent.stat().st_mode & 0o777

    value, mode = ef.run(look_around, workers=2, spark=spark_cluster).value
    assert mode == 0o700
    seen = b"\n".join(value)
    assert b"emberflow._node.main" in seen  # it did look
    conf = repr(spark_cluster.sparkContext.getConf().getAll())
    execution = spark_cluster._jsparkSession.sharedState().statusStore().executionsList().last()
    plan = f"{execution.physicalPlanDescription()} {execution.description()} {execution.details()}"
    assert "MapInArrow" in plan
    assert not pattern.search(seen + f"{conf} {plan} {caplog.text}".encode())


def test_a_session_that_asks_for_encryption_runs_but_for_what_tensorflow_cannot_encrypt(
    spark_cluster: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = spark_cluster.sparkContext.getConf().set("spark.ssl.rpc.enabled", "TRUE")
    monkeypatch.setattr(type(spark_cluster.sparkContext), "getConf", lambda _: conf)
    for refused in ({"transport": "collectives"}, {"strategy": "parameter_server", "ps": 1}):
        with pytest.raises(ef.EncryptionError, match=r"spark\.ssl\.rpc\.enabled=true"):
            ef.run(train, workers=2, spark=spark_cluster, **refused)
    assert ef.run(lambda _: 7, workers=2, spark=spark_cluster, verbose=False).value == 7


@pytest.mark.fault
def test_a_driver_that_cannot_be_dialled_is_met_by_sparks_barrier(
    spark_cluster: "SparkSession", caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    result = ef.run(train, workers=2, spark=spark_cluster, driver_host="127.0.0.9")
    check_undialled(result, caplog, capfd)


def check_undialled(
    result: ef.Result, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """All is there although no node could dial: it came with Spark's rows, after one warning."""
    assert result.value["rank"] == 0
    assert sorted((m.rank, m.values["loss"]) for m in result.metrics) == [(0, 0.5), (1, 1.5)]
    assert "[worker 1] hello from 1" in capfd.readouterr().err
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert sum("reach" in text for text in warnings) == 1, warnings
    assert "127.0.0.9" in "".join(warnings)
