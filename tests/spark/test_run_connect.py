"""`ef.run` over Spark Connect: what differs there."""

import logging
import os
import signal
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import emberflow as ef
from emberflow._driver import cluster_facts as facts
from emberflow._driver.paths import path_rules_of, resolve_path
from emberflow._driver.storage_settings import storage_settings_of
from tests.spark.test_run import check_undialled, train
from tests.spark.watching import await_begun, begin, error_of, start_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNDIALLED = "127.0.0.9"

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_a_client_that_cannot_be_dialled_gets_everything_at_the_end(
    spark_connect: "SparkSession", caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    result = ef.run(train, workers=2, spark=spark_connect, driver_host="127.0.0.9", allow_unencrypted=True)
    check_undialled(result, caplog, capfd)


@pytest.mark.parametrize(
    "host", [None, pytest.param("127.0.0.9", marks=pytest.mark.full)], ids=["dialled", "undialled"]
)
def test_an_exception_comes_whole(
    spark_connect: "SparkSession", request: pytest.FixtureRequest, tmp_path: Path, host: str | None
) -> None:
    if host:
        request.getfixturevalue("session_ends_with_test")

    def fail(ctx: Any) -> None:
        if ctx.rank == 0:
            signal.pause()
        begin(tmp_path, ctx.rank)
        raise ValueError("nan loss" + "x" * 3000 + " the end")

    run = start_run(spark_connect, fail, driver_host=host)
    error = error_of(run, await_begun(tmp_path, 1).at, f"exception over Connect, driver {host}")
    assert isinstance(error, ef.NodeFailedError)
    assert (error.rank, error.exception_type) == (1, "ValueError")
    assert error.remote_traceback.rstrip().endswith("the end")


@pytest.mark.fault
def test_too_few_slots_end_at_the_start_deadline_and_nothing_stays_queued(
    spark_connect: "SparkSession",
) -> None:
    started = time.monotonic()
    with pytest.raises((ef.StartTimeoutError, ef.ClusterError)) as caught:
        ef.run(train, workers=5, spark=spark_connect, start_timeout=4.0)
    seconds = time.monotonic() - started
    print(f"too few slots on Connect: refused after {seconds:.1f} s: {caught.value.problem[:80]}")
    assert seconds < 4.0 + 5.0
    started = time.monotonic()
    assert ef.run(lambda ctx: ctx.workers, workers=2, spark=spark_connect, verbose=False).value == 2
    assert time.monotonic() - started < 15.0  # nothing stands in front of it


@pytest.mark.fault
def test_an_interrupted_operation_is_a_cancelled_run(spark_connect: "SparkSession", tmp_path: Path) -> None:
    def wait(ctx: Any) -> None:
        begin(tmp_path, ctx.rank)
        signal.pause()

    run = start_run(spark_connect, wait)
    for rank in range(2):
        await_begun(tmp_path, rank)
    cancelled = time.time()
    spark_connect.interruptAll()
    assert isinstance(error_of(run, cancelled, "interruptAll over Connect"), ef.RunCancelledError)


@pytest.mark.full
@pytest.mark.parametrize("host", [None, UNDIALLED], ids=["connection", "artifact"])
def test_a_closure_above_connects_limit_of_a_message_gets_to_the_nodes(
    spark_connect: "SparkSession", host: str | None
) -> None:
    data = os.urandom(1000) * 140_000
    result = ef.run(
        lambda _: zlib.crc32(data), workers=2, spark=spark_connect, verbose=False, driver_host=host
    )
    assert [report.value for report in result.reports] == [zlib.crc32(data)] * 2


def test_a_value_above_sparks_limit_goes_by_the_shared_folder_or_is_an_error_that_says_so(
    spark_connect: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "result_limit", lambda _: 4_000_000)  # the server's own is 1 GB
    large, options = os.urandom(5_000_000), {"workers": 2, "spark": spark_connect, "verbose": False}
    assert ef.run(lambda _: large, **options).value == large
    assert (
        ef.run(lambda _: large, driver_host=UNDIALLED, checkpoint_dir=str(tmp_path), **options).value == large
    )
    assert not list(tmp_path.glob(".value-*"))
    with pytest.raises(
        ef.ClusterError, match=r"could not deliver what your function returned: 4\.8 MB are too large"
    ):
        ef.run(lambda _: large, driver_host=UNDIALLED, **options)


@pytest.mark.full
def test_a_value_of_50_mb_arrives_whole_over_connect(spark_connect: "SparkSession") -> None:
    value = ef.run(lambda _: bytes(range(250)) * 200_000, workers=2, spark=spark_connect, verbose=False).value
    assert value == bytes(range(250)) * 200_000


def test_auto_workers_cannot_be_known(spark_connect: "SparkSession") -> None:
    with pytest.raises(ef.ConfigError, match="Pass both as numbers"):
        ef.run(train, workers="auto", spark=spark_connect)


def test_what_connect_does_not_tell_is_warned_of_once(
    spark_connect: "SparkSession", caplog: pytest.LogCaptureFixture
) -> None:
    ef.run(train, workers=2, spark=spark_connect, verbose=False)
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "allow_unencrypted=True" in warnings[0]


@pytest.mark.full
def test_the_default_file_system_is_a_setting_of_the_session(spark_connect: "SparkSession") -> None:
    """The server's own files cannot be read: what it was started with is known, and what the client says."""
    assert resolve_path(spark_connect, "/models/x") == "/models/x"
    said = {
        "spark.hadoop.fs.defaultFS": "hdfs://host:8020",
        "spark.hadoop.fs.s3a.endpoint": "http://host:9000",
        "spark.hadoop.fs.s3a.secret.key": "hidden",
    }
    try:
        for name, value in said.items():
            spark_connect.conf.set(name, value)
        assert path_rules_of(spark_connect).resolve("/models/x") == "hdfs://host:8020/models/x"
        found = storage_settings_of(spark_connect).hadoop
        assert found["fs.s3a.endpoint"] == "http://host:9000"
        assert "fs.s3a.secret.key" not in found, "Spark tells it now: docs/storage.md says that it does not"
    finally:
        for name in said:
            spark_connect.conf.unset(name)
